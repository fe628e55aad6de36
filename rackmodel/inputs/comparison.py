"""What a comparison searches: machines and mappers as written, read and checked before anything is searched.

ARCH[:N][,ARCH...]     :N uses N accelerators              MAPPER[@ARCH]...     with @ on that machine only, else on every one
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackmodel.errors import InputError, Where, check_once, nearest
from rackmodel.inputs import Inputs, apply_overrides, load
from rackmodel.inputs.graph import build_graph
from rackmodel.inputs.library import exists, names
from rackmodel.inputs.marked import Marked, short
from rackmodel.inputs.overrides import sorted_sets
from rackmodel.inputs.read import build_architecture, build_mapper
from rackmodel.inputs.said import Said
from rackmodel.inputs.yaml_marks import compose_value
from rackmodel.once import once


@dataclass(frozen=True)
class Cell:
    """One search of a comparison. machine: as written, without its number · mapper: without its machine · alone: no other machine
    is compared · number: of accelerators that is written after the machine, '' where none
    is or an override said another."""

    machine: str
    mapper: str
    inputs: Inputs
    alone: bool
    number: str = ""

    @property
    def name(self) -> str:
        """'megatron', or 'megatron on dgx_a100' where several machines are compared."""
        return self.mapper if self.alone else f"{self.mapper} on {self.machine}"


def cells(architecture: str | Sequence[str], workload: str, mappers: Sequence[str], *, sets: Sequence[str] = ()) -> list[Cell]:
    """What a comparison searches: each mapper, in order, on the machine after its @ or else on every machine in order.

    architecture: machines, as 'cs2:16,dgx_a100' or one by one; :N uses N accelerators, a name or path may hold colons itself ·
    sets: an override of a machine holds for the machines that have it, any other for all. Raises InputError.
    """
    machines = _machines(architecture)
    pairs = [(mapper, machine) for word in _apart(mappers, machines) for mapper, machine in _placed(word, machines)]
    check_once([mapper if len(machines) == 1 else f"{mapper}@{machine}" for mapper, machine in pairs], "MAPPER")
    read: dict[tuple[str, str], Marked] = {}

    def raw(kind: str, name: str) -> Marked:
        return once(read, (kind, name), lambda: load(kind, name))

    for machine in machines:
        if mappers and all(machine != used for _, used in pairs):
            raw("architecture", machine)  # a mistyped name is told first
            raise InputError(f"no mapper runs on '{machine}'", path="ARCH")
    raws = [(_with_number(raw("architecture", a), a, machines[a]), raw("workload", workload), raw("mapper", m)) for m, a in pairs]
    of_profile, others = sorted_sets(sets)
    said, started = [Said() for _ in raws], [tree for tree, *_ in raws]
    for text in others:
        raws = _override(text, raws, said)
    alone = len(machines) == 1
    found = []
    for (mapper, machine), first, (tree, graph, plan) in zip(pairs, started, raws, strict=True):
        try:
            built = build_architecture(tree), build_graph(graph), build_mapper(plan)
            inputs = Inputs(*built, third=plan, raws=(tree, graph), of_profile=tuple(of_profile))
        except InputError as problem:
            overridden = not alone and problem.where is not None and problem.where.file.startswith("--set")
            raise saying(problem, f" (on {machine})" if overridden else "")
        kept = tree.child("accelerators") is first.child("accelerators")
        found.append(Cell(machine, mapper, inputs, alone, machines[machine] if kept else ""))
    _check_names(found)
    return found


_Raws = tuple[Marked, Marked, Marked]
_NUMBERED = re.compile(r"(.+):(\d+)", re.ASCII)


def _machines(said: str | Sequence[str]) -> dict[str, str]:
    """Machine as written, without its number → that number, '' where there is none. Raises InputError."""
    words = list(said) if not isinstance(said, str) else [said] if _is_file(said) or _numbered_file(said) else said.split(",")
    found: dict[str, str] = {}
    for word in (word.strip() for word in words):
        if not word and len(words) > 1:
            raise InputError("a machine is missing beside a comma", path="ARCH")
        numbered = None if _is_file(word) else _NUMBERED.fullmatch(word)
        name, number = (numbered[1], numbered[2]) if numbered else (word, "")
        head, colon, tail = word.rpartition(":")
        if not numbered and colon and not _is_file(word) and (head in names("architecture") or _is_file(head)):
            raise InputError(f"'{short(tail)}' is not a whole number of accelerators: want {head}:8", path="ARCH")
        if name in found:
            raise InputError(f"'{name}' is there twice: compare numbers of accelerators of one machine in two commands", path="ARCH")
        found[name] = number
    if not found:
        raise InputError("no machine to compare", path="ARCH", known=names("architecture"))
    return found


def _is_file(text: str) -> bool:
    return bool(text) and exists(Path(text))


def _numbered_file(text: str) -> bool:
    numbered = _NUMBERED.fullmatch(text)
    return numbered is not None and _is_file(numbered[1])


def saying(problem: InputError, more: str) -> InputError:
    """The same error with more words; what it tells besides stays."""
    first, *others = problem.problems
    return InputError(first.message + more, where=first.where, path=first.path, known=first.known, given=first.given, more=others)


def _apart(mappers: Sequence[str], machines: Iterable[str]) -> Iterator[str]:
    """Mappers one by one, also where commas join them as they join machines. Raises InputError."""
    for said in mappers:
        odd = "\n" in said or _is_file(said) or any("," in machine and said.endswith(f"@{machine}") for machine in machines)
        words = [said] if odd else [word.strip() for word in said.split(",")]
        if not all(words) and len(words) > 1:
            raise InputError("a mapper is missing beside a comma", path="MAPPER")
        yield from words


def _placed(word: str, machines: Mapping[str, str]) -> list[tuple[str, str]]:
    """(mapper, machine) of one mapper as written. Raises InputError for a machine that is not compared."""
    if "@" not in word or _is_file(word):
        return [(word, machine) for machine in machines]
    meant = [machine for machine in machines if word.endswith(f"@{machine}")]
    if not meant:
        machine = word.rpartition("@")[2]
        fact = f"'{short(word)}': no machine '{short(machine)}' is compared"
        raise InputError(fact, path="MAPPER", known=list(machines), given=machine)
    longest = max(meant, key=len)  # a path may itself hold an @
    return [(word.removesuffix(f"@{longest}"), longest)]


def _with_number(tree: Marked, machine: str, number: str) -> Marked:
    """A machine's tree with its number of accelerators; what is wrong with it points at `machine:number`."""
    if not number:
        return tree
    place = Where(f"{short(machine, 80)}:{short(number)}")
    return tree.having("accelerators", compose_value(number, place.file), place)


def _override(text: str, raws: Sequence[_Raws], said: Sequence[Said]) -> list[_Raws]:
    """The inputs with one override where it is known. said: of each, what was before. Raises InputError where none knows it, or where one
    lacks what is no machine's."""
    done: list[_Raws] = []
    lacking: list[InputError] = []
    only_machines = True
    for (tree, graph, plan), before in zip(raws, said, strict=True):
        try:
            made = apply_overrides([text], tree, graph, plan, before=before)
        except InputError as problem:
            if problem.given is None:  # it is known, and wrong
                raise
            lacking.append(problem)
            made = (tree, graph, plan)
        else:
            only_machines &= made[0] is not tree
        assert made[0] is not None
        assert made[1] is not None
        assert made[2] is not None
        done.append((made[0], made[1], made[2]))
    if len(lacking) == len(raws) or (lacking and not only_machines):
        best = next((one for one in lacking if nearest(one.given, one.known)), lacking[0])
        known = dict.fromkeys(word for one in lacking if one.message == best.message for word in one.known)
        raise InputError(best.message, where=best.where, path=best.path, known=known, given=best.given)
    return done


def _check_names(found: Sequence[Cell]) -> None:
    """Raise InputError for two machines whose files give one name: their results could not be told apart."""
    said: dict[str, str] = {}
    for cell in found:
        name = cell.inputs.architecture.name
        if said.setdefault(name, cell.machine) != cell.machine:
            raise InputError(f"'{said[name]}' and '{cell.machine}' both say architecture: {name}; rename one", path="ARCH")
