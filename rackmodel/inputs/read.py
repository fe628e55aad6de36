"""Names of inputs → typed objects: architecture, workload, mapper, mapping, profile, study, part and tables.

Every public reader takes a name of the library or a path, raises InputError and nothing else, and checks all that
reading alone can show.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from rackmodel.carbon.operational import grid_intensity_g_per_j
from rackmodel.cost.network.calls import MachineCalls
from rackmodel.errors import InputError, Where, nearest
from rackmodel.inputs import schema
from rackmodel.inputs.carbon_tables import grids_of, read_grids, tables_of, unknown_names
from rackmodel.inputs.graph import build_graph
from rackmodel.inputs.library import FOLDERS, Source, a, called, exists, folder_of, is_path, names, resolve
from rackmodel.inputs.load import kind_in, with_parts
from rackmodel.inputs.marked import Marked, place_of, short
from rackmodel.inputs.nest_shape import NestsSpec
from rackmodel.inputs.overrides import OF_PROFILE, apply_overrides, override_profile, sorted_sets
from rackmodel.inputs.own_files import with_own_files
from rackmodel.inputs.problems import build, in_order, placed
from rackmodel.inputs.published import load, load_source
from rackmodel.inputs.yaml_marks import read_yaml
from rackmodel.model.architecture import Architecture, Level, Network
from rackmodel.model.calls import CollectivesSpec, LibraryCall
from rackmodel.model.exchanges import ExchangeMode, ExpertExchange
from rackmodel.model.mapping import MapperSpec, MappingSpec
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload
from rackmodel.model.workload_spec import WorkloadSpec

Plan = TypeVar("Plan", MapperSpec, MappingSpec)


@dataclass(frozen=True)
class Inputs:
    """What a command works on: a machine, a workload, and a space of mappings or one mapping. raws: the trees of the first two files ·
    third: that of the mapper or mapping · of_profile: overrides of the profile, which is read with them · asked: the profile's tree,
    where it was read too."""

    architecture: Architecture
    workload: Workload
    mapper: MapperSpec | None = None
    mapping: MappingSpec | None = None
    third: Marked | None = None
    raws: tuple[Marked, ...] = ()
    of_profile: tuple[str, ...] = ()
    asked: Marked | None = None

    def _profile_tree(self, name: str | None) -> Marked | None:
        """The tree of the profile of that name, else of the one that the mapper or mapping names."""
        if self.asked is not None:
            return self.asked
        plan = self.mapper or self.mapping
        said = name or (plan.profile if plan is not None else None)
        return override_profile(load("profile", said), self.of_profile) if said else None

    def place(self, problem: InputError, profile: str | None = None) -> InputError:
        """An error found after reading, placed in the file whose keys its path begins with, if nothing placed it before.

        profile: the name of the one asked for, if any. An option ('--minimize') stays as it is; a path of no file's keys is
        the mapper's or mapping's.
        """
        if problem.where is not None or self.third is None or problem.path.startswith("--"):
            return problem
        if problem.path.startswith(OF_PROFILE) and (tree := self._profile_tree(profile)) is not None:
            return problem.at(place_of(tree, problem.path.split(".")[1:]))
        first = problem.path.partition(".")[0]
        mine = schema.keys_of([MapperSpec if self.mapper is not None else MappingSpec]) or []
        files = zip((Architecture, WorkloadSpec), self.raws, strict=False)
        theirs = (raw for model, raw in files if first and first not in mine and first in (schema.keys_of([model]) or []))
        return placed(problem, next(theirs, self.third))


def read_inputs(
    architecture: str | Path,
    workload: str | Path,
    *,
    mapper: str | Path | None = None,
    mapping: str | Path | None = None,
    sets: Sequence[str] = (),
) -> Inputs:
    """Read the inputs of a command, overridden by `sets` ('gpu.count=4'). Raises InputError."""
    third = ("mapper", mapper) if mapper is not None else ("mapping", mapping)
    raws = (load("architecture", architecture), load("workload", workload), load(third[0], third[1]) if third[1] is not None else None)
    of_profile, others = sorted_sets(sets)
    machine, graph, plan = apply_overrides(others, *raws)
    assert machine is not None
    assert graph is not None
    return Inputs(
        build_architecture(machine),
        build_graph(graph),
        build_mapper(plan) if plan is not None and mapper is not None else None,
        build_mapping(plan) if plan is not None and mapper is None else None,
        plan,
        (machine, graph),
        tuple(of_profile),
    )


def read_architecture(name: str | Path, sets: Sequence[str] = ()) -> Architecture:
    """An architecture. Raises InputError."""
    raw = apply_overrides(sets, load("architecture", name), None, None)[0]
    assert raw is not None
    return build_architecture(raw)


def read_workload(name: str | Path, sets: Sequence[str] = ()) -> Workload:
    """A workload, checked and connected. Raises InputError."""
    raw = apply_overrides(sets, None, load("workload", name), None)[1]
    assert raw is not None
    return build_graph(raw)


def read_mapper(name: str | Path, sets: Sequence[str] = ()) -> MapperSpec:
    """A mapper. Raises InputError."""
    raw = apply_overrides(sets, None, None, load("mapper", name))[2]
    assert raw is not None
    return build_mapper(raw)


def read_mapping(name: str | Path, sets: Sequence[str] = ()) -> MappingSpec:
    """A mapping. Raises InputError."""
    raw = apply_overrides(sets, None, None, load("mapping", name))[2]
    assert raw is not None
    return build_mapping(raw)


def read_profile(name: str | Path, sets: Sequence[str] = ()) -> ProfileSpec:
    """A profile, overridden by `sets` ('profile.overlap.contention=0'). Raises InputError."""
    return build(ProfileSpec, override_profile(load("profile", name), sets))


@cache
def read_collectives(name: str | Path) -> CollectivesSpec:
    """The collectives that were measured on a network. Raises InputError."""
    return build(CollectivesSpec, load("collectives", name))


def machine_calls(architecture: Architecture, asked: LibraryCall | None, *, going_on: bool = False) -> MachineCalls | None:
    """What a machine's networks know of a library's collectives; None where none is asked for. going_on: whether all-reduces go on with a
    normalisation as far as the networks say. Raises InputError."""
    if asked is None:
        return None
    files = {tier.level: _measured_on(tier.network) for tier in architecture.tiers if tier.network.calls is not None}
    exchanges = {level: file.exchanges for level, file in files.items()}
    listed = {level: file.going_on[asked.library] for level, file in files.items() if going_on and asked.library in file.going_on}
    return MachineCalls({level: file.calls for level, file in files.items()}, asked, exchanges, listed)


def _measured_on(network: Network) -> CollectivesSpec:
    """What was measured on a network that names a file, at the bandwidth that it has here."""
    assert network.calls is not None
    return read_collectives(network.calls).at(network.bandwidth_bytes_per_s)


def machine_exchange(
    architecture: Architecture, level: str, library: str, release: str | None, mode: ExchangeMode
) -> ExpertExchange | None:
    """How a library exchanges tokens over one network of a machine: of the release, else of the newest; None where nothing is known."""
    found = next((tier.network for tier in architecture.tiers if tier.level == level and tier.network.calls is not None), None)
    own = _measured_on(found).exchanges.get(library, ()) if found is not None else ()
    same = [one for one in own if one.mode in (mode, "any")]
    return next((one for one in same if release in one.releases), same[0] if same else None)


def read_study(name: str | Path) -> Any:
    """A study (a studies.study.StudySpec), which knows where its paths start. Raises InputError."""
    found: Any = READERS["study"](load("study", name))
    return found.read_from(folder_of("study", name))


def build_architecture(raw: Marked) -> Architecture:
    """A tree of an architecture → the machine; names of the carbon tables are looked up too."""
    machine = build(Architecture, with_own_files(raw))
    try:
        tables = tables_of(machine)
        if machine.site is not None:
            grid_intensity_g_per_j(machine.site, grids_of(machine))
    except InputError as problem:
        raise placed(problem, raw)
    unknown = list(unknown_names(raw, tables))
    if unknown:
        raise in_order(unknown, raw)
    pools = machine.pools
    return pools[0] if len(pools) == 1 else machine


def build_mapper(raw: Marked) -> MapperSpec:
    """A tree of a mapper → the space."""
    return _telling_of_the_profile(MapperSpec, raw)


def _telling_of_the_profile(model: type[Plan], raw: Marked) -> Plan:
    """As build; what else is wrong is told with a profile that is none. (Alone, that is told later: an option may name another.)"""
    try:
        return build(model, raw)
    except InputError as found:
        try:
            _check_profile(raw)
        except InputError as fact:
            raise in_order([found, fact], raw) from None
        raise


def build_mapping(raw: Marked) -> MappingSpec:
    """A tree of a mapping → the point; its loop nests are checked for their shape."""
    mapping = _telling_of_the_profile(MappingSpec, raw)
    nests = raw.child("nests")
    if nests is not None:
        build(NestsSpec, Marked({"nests": nests}, raw.where, {"nests": raw.keys["nests"]}))
    return mapping


def _build_part(raw: Marked) -> Level:
    """A part file alone: it must be what a level may say."""
    name = Marked("part", raw.where)
    inner = Marked({"name": name, **raw.without("part").mapping}, raw.where, {"name": raw.where, **raw.without("part").keys})
    whole = with_parts(Marked({"tree": inner}, raw.where, {"tree": raw.where}))
    return build(Level, whole.mapping["tree"])


def _by_schema(place: str) -> Callable[[Marked], object]:
    """A reader by the schema at 'module:Class', which is imported when a file of that kind is read."""

    def read(raw: Marked) -> object:
        module, _, name = place.partition(":")
        return build(cast("type[BaseModel]", getattr(importlib.import_module(module), name)), raw)

    return read


READERS: dict[str, Callable[[Marked], object]] = {
    "architecture": build_architecture,
    "workload": build_graph,
    "mapper": build_mapper,
    "mapping": build_mapping,
    "profile": _by_schema("rackmodel.model.profile:ProfileSpec"),
    "study": _by_schema("rackmodel.studies.study:StudySpec"),
    "part": _build_part,
    "collectives": _by_schema("rackmodel.model.calls:CollectivesSpec"),
    "carbon": read_grids,
    "validation": _by_schema("rackmodel.validation.words:WordsSpec"),
    "block": _by_schema("rackmodel.model.family:BlockSpec"),
    "family": _by_schema("rackmodel.model.family:FamilySpec"),
    "papers": _by_schema("rackmodel.papers.contents:PapersSpec"),
}
"""Kind → what turns its tree into a typed object."""


def find(name: str | Path) -> tuple[str, Source]:
    """(kind, file) of a name of the library, whatever its folder, or of a path. Raises InputError."""
    text = str(name)
    if not is_path(name):
        for kind in FOLDERS:
            if text in called(kind):
                return kind, resolve(kind, text)
        if not (text and exists(Path(text))):
            raise InputError(f"no input called '{short(text)}'", known=sorted({n for kind in FOLDERS for n in called(kind)}), given=text)
    if not exists(Path(text)):
        close = {kind: nearest(Path(text).stem, names(kind)) for kind in FOLDERS}
        hint = next((f"; the library has {a(kind)} '{found}'" for kind, found in close.items() if found), "")
        raise InputError(f"no such file{hint}", where=Where(short(text, 200)))
    source = Source(Path(text), text)
    return kind_in(read_yaml(source.path, source.shown)), source


def kind_of(name: str | Path) -> str:
    """What a name or a file is, by the library's folder or the file's first key. Raises InputError."""
    return find(name)[0]


def check(name: str | Path) -> str:
    """Read any input and check all that reading alone can show; returns its kind. Raises InputError."""
    kind, source = find(name)
    raw = load_source(kind, source)
    READERS[kind](raw)
    if kind in ("mapper", "mapping"):
        _check_profile(raw)
    return kind


def _check_profile(raw: Marked) -> None:
    """Raise InputError at the name of a profile that is none. (A question tells that later: an option may name another.)"""
    name = raw.child("profile")
    if name is None or name.text is None or "\n" in name.text:
        return
    try:
        resolve("profile", name.text)
    except InputError as wrong:
        raise InputError(wrong.message, where=name.where, path="profile", known=wrong.known, given=wrong.given) from None


def library_names() -> dict[str, list[str]]:
    """Kind → names of the library's files."""
    return {kind: names(kind) for kind, folder in FOLDERS.items() if folder}


def library_path(kind: str, name: str | Path) -> Path:
    """The file that a name or a path means. Raises InputError."""
    return resolve(kind, name).path
