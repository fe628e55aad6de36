"""`rackmodel why ... --not axes.tp.degree=4`: why the answer is not another, and what the other would cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.options import JsonOption, MinimizeOption, ProfileOption, SetOption, TimeOption, folder, objective, time_limit
from rackmodel.cli.printing import echo, print_json
from rackmodel.cli.progress import watching
from rackmodel.cli.sensitivity import show_sensitivity
from rackmodel.errors import InfeasibleError, InputError, Where
from rackmodel.watch import Watch

if TYPE_CHECKING:
    from rackmodel.inputs import Inputs
    from rackmodel.model.mapping import MappingSpec
    from rackmodel.model.profile import ProfileSpec
    from rackmodel.model.result import Result


EVEN = 1e-9  # of the objective: less is arithmetic


@dataclass(frozen=True)
class Other:
    """The best answer under a condition, or why there is none."""

    condition: str
    result: Result | None
    problem: InfeasibleError | None


def why(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="RESULT | ARCH WORKLOAD [MAPPER]", help="A folder that `search -o` wrote, or what to search."),
    ],
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--not", metavar="NAME=VALUE", help="Search again without this choice: axes.tp.degree=4; may be repeated, each asked alone."
        ),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Tornado: set each number of the machine to both ends of its range and search again.")
    ] = False,
    sets: SetOption = None,
    minimize: MinimizeOption = None,
    profile: ProfileOption = None,
    time: TimeOption = None,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the sensitivity as CSV, PNG and SVG.")] = None,
) -> None:
    """Explain why a mapping is the best: the best without a choice, how much worse it is and by which charges; or which numbers matter."""
    from rackmodel.report.finite import check_finite

    asked = _question(inputs, list(sets or ()), objective(minimize), profile)
    if sensitivity == bool(conditions):
        raise InputError("keep --not or --sensitivity" if sensitivity else "want --not NAME=VALUE, or --sensitivity", path="why")
    if output is not None and not sensitivity:
        raise InputError("is of --sensitivity", path="--output")
    for condition in conditions or ():
        _no_mapping(condition)
        _read(asked, condition)  # what cannot be read is said before anything is searched
    with watching(time_limit(time)) as watch:
        search, priced = _searching(asked, watch)
        best = search()
        if len(inputs) == 1 and not (sets or minimize or profile):
            _tell_if_another(best, inputs[0])
        if sensitivity:
            own = partial(priced, best.mapping)
            show_sensitivity(best, search, own, as_json=as_json, where=folder(output))
            return
        others = []
        for condition in conditions or ():
            try:
                others.append(Other(condition, search(condition), None))
            except InfeasibleError as problem:
                others.append(Other(condition, None, problem))
    check_finite([best, *(one.result for one in others if one.result)])
    if as_json:
        print_json({"result": best.to_dict(), "others": [_data(best, one) for one in others]})
        return
    _print(best, others)


def _no_mapping(condition: str) -> None:
    """Raise InputError where a file stands for what an answer is not: two mappings are told apart by `diff`."""
    if "=" not in condition and Path(condition).suffix in (".yaml", ".yml"):
        fact = f"'{condition}' is a file: rackmodel diff ARCH WORKLOAD mapping.yaml {condition} says what your mapping costs, and why"
        raise InputError(fact, path="--not")


def _question(inputs: list[str], sets: list[str], minimize: str | None, profile: str | None) -> dict[str, Any]:
    """What was, or is, asked. Raises InputError."""
    from rackmodel.inputs.said import instead
    from rackmodel.report.saved import read_saved

    if len(inputs) == 1:
        one = read_saved(inputs[0])
        asked = one.asked
        if not all(isinstance(asked.get(key), str) for key in ("architecture", "workload", "mapper")):
            raise InputError("does not say what was searched: want a folder that `search -o` wrote", where=Where(inputs[0]))
        said = [_from_here(str(text), one.asked_in) for text in asked.get("sets") or ()]
        goal, words = asked.get("minimize"), asked.get("profile")
        own = {"minimize": minimize or goal, "profile": profile or (words and _from_here(words, one.asked_in))}
        own |= {key: _from_here(asked[key], one.asked_in) for key in ("architecture", "workload", "mapper")}
        return own | {"limits": asked.get("limits") or {}, "sets": instead(said, sets)}
    if len(inputs) not in (2, 3):
        raise InputError(f"{len(inputs)} names: want a result, or ARCH WORKLOAD [MAPPER]", path="RESULT")
    mapper = inputs[2] if len(inputs) == 3 else "auto"
    return {"architecture": inputs[0], "workload": inputs[1], "mapper": mapper, "minimize": minimize, "profile": profile, "sets": sets}


def _from_here(word: str, asked_in: Path | None) -> str:
    """A word of a command that ran in another folder: where it, or what a setting sets, is a path from there, the path from here."""
    from rackmodel.inputs.library import exists, is_path, show

    name, equals, value = word.rpartition("=")
    if asked_in is None or not is_path(value) or not exists(asked_in / value):
        return word
    return name + equals + show((asked_in / value).resolve())


def _tell_if_another(best: Result, name: str) -> None:
    """Say that a result's question has another answer now than its file says."""
    from rackmodel.report.saved import read_saved
    from rackmodel.report.tables import format_si

    def words(latency_s: float, energy_j: float) -> str:
        return f"{format_si(latency_s, 's', 6)}, {format_si(energy_j, 'J', 6)}"

    then = read_saved(name).data
    before, now = (then["latency_s"], then["energy_j"]), (best.latency_s, best.energy_j)
    if not all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(before, now, strict=True)):
        why = "its inputs or this program have changed since, or its search was cut short"
        echo(f"{name}: {words(*before)} then, {words(*now)} now: {why}", err=True)


def _read(asked: dict[str, Any], condition: str) -> None:
    """Raise InputError for a condition that the inputs do not take, or that is none: another objective has no answer that is worse."""
    from rackmodel.inputs import read_inputs
    from rackmodel.inputs.load import at_override
    from rackmodel.inputs.said import instead

    name, _, goal = (word.strip() for word in condition.partition("="))
    if name in ("minimize", "mapper.minimize"):
        raise InputError(f"an objective is no condition of the answer: ask for it by --minimize {goal}", path="--not")
    try:
        read_inputs(asked["architecture"], asked["workload"], mapper=asked["mapper"], sets=instead(asked["sets"], [condition]))
    except InputError as problem:
        said = at_override(condition)
        if problem.where != said or problem.more:
            raise
        here = Where(said.file.replace("--set", "--not", 1))
        raise InputError(problem.message, where=here, path=problem.path, known=problem.known, given=problem.given) from None


def _searching(asked: dict[str, Any], watch: Watch) -> tuple[Callable[..., Result], Callable[..., Result]]:
    """(Searches of what is asked, each under more settings or none, which share what they read and price alike; a mapping's price under
    them)."""
    from rackmodel import api
    from rackmodel.cost.step.tasks.shared import Shared
    from rackmodel.inputs.said import instead
    from rackmodel.inputs.shared import SharedInputs

    read, known = SharedInputs(), Shared()

    def inputs_of(settings: tuple[str, ...]) -> tuple[Inputs, ProfileSpec]:
        of = (asked["architecture"], asked["workload"], asked["mapper"])
        point = read.read(*of, profile=asked["profile"], sets=instead(asked["sets"], list(settings)))
        return point.inputs(), point.profile()

    def search(*settings: str) -> Result:
        inputs, profile = inputs_of(settings)
        assert inputs.mapper is not None
        how: dict[str, Any] = {"minimize": asked["minimize"], "limits": asked.get("limits"), "profile": profile, "shared": known}
        try:
            return api.search_mapper(inputs.architecture, inputs.workload, inputs.mapper, **how, watch=watch.again()).result
        except InputError as problem:
            raise inputs.place(problem, asked["profile"])

    def priced(mapping: MappingSpec, *settings: str) -> Result:
        inputs, profile = inputs_of(settings)
        return api.evaluate_mapping(inputs.architecture, inputs.workload, mapping, profile=profile)

    return search, priced


def _worse(best: Result, other: Result) -> float | None:
    """How much more of what is minimised."""
    least = best.certificate.objective
    return other.certificate.objective / least - 1 if least else None


def _data(best: Result, one: Other) -> dict[str, Any]:
    from rackmodel.report.difference import changes

    if one.result is None:
        assert one.problem is not None
        return {"condition": one.condition, "infeasible": one.problem.to_dict()}
    by = ("component", "level", "action")
    rows = [change.to_dict(by) for change in changes(best.ledger, one.result.ledger, by)]
    return {"condition": one.condition, "worse": _worse(best, one.result), "result": one.result.to_dict(), "rows": rows}


def _print(best: Result, others: list[Other]) -> None:
    from rackmodel.report.difference import changes
    from rackmodel.report.tables import format_percent, format_si, limit_words, mapping_words

    goal = best.certificate.minimize
    echo(f"{best.workload} on {best.architecture}: {mapping_words(best.mapping)}")
    echo(f"  least {goal}, {best.certificate.status}: {format_si(best.latency_s, 's')}, {format_si(best.energy_j, 'J')}")
    for one in others:
        echo("")
        if one.result is None:
            echo(f"not {one.condition}: {one.problem}")
            continue
        worse = _worse(best, one.result)
        if one.result.mapping == best.mapping and not worse:
            echo(f"{one.condition}: the best of those is the answer itself")
            continue
        words = "the same" if not worse else f"{format_percent(abs(worse))} {'more' if worse > 0 else 'less'} {goal}"
        inside = not worse or worse > -EVEN  # else the condition leaves what was asked: a mesh that the mapper lacks, another machine
        said = f"not {one.condition}, for" if inside else f"{one.condition} is not what was asked:"
        echo(f"{said} the best of those is {words} ({one.result.certificate.status}):")
        echo(f"  {mapping_words(one.result.mapping)}")
        echo(f"  {format_si(one.result.latency_s, 's')}, {format_si(one.result.energy_j, 'J')}; {', '.join(limit_words(one.result))}")
        sort = "joules" if goal in ("energy", "carbon") else "seconds"
        place, unit = (1, "J") if sort == "joules" else (0, "s")
        for change in changes(best.ledger, one.result.ledger, ("component", "level", "action"), sort)[:5]:
            by = change.by[place]
            if by:
                echo(f"    {'+' if by > 0 else '-'}{format_si(abs(by), unit, 3)}  {' '.join(change.key)}")
