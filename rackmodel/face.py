"""What `import rackmodel as rm` offers: read, search, compare, evaluate, price, sweep.

Inputs are names of the library, paths, text or plain data ({"workload": "mine", "sizes": ...}), or objects that were read before;
`set` changes any number of them: {"gpu.memory.bandwidth": "4 TB/s", "accelerators": 32}.

import rackmodel as rm
best = rm.search("rack_paper", "ffn", "auto", set={"accelerators": 8}).result
print(best.latency_s, best.ledger.to_frame().groupby("component").joules.sum())
machine = rm.read("dgx_h100")
print([r.latency_s for r in rm.compare(machine, "llama3_8b", ["megatron", "parallel"], set={"accelerators": 64, "b": 64})])
print(rm.sweep("rack_paper", "ffn", ["data", "tensor"], set={"accelerators": [4, 8, 16]}).to_frame())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from operator import index
from pathlib import Path
from typing import Any

import yaml

from rackmodel import api
from rackmodel.api import Answer, Prices
from rackmodel.cost.ledger import Ledger
from rackmodel.errors import InfeasibleError, InputError, OutputError, RackmodelError
from rackmodel.inputs import kind_of, read_architecture, read_inputs, read_mapper, read_mapping, read_workload
from rackmodel.inputs.plain_yaml import dumped, plain_data
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec as Mapper
from rackmodel.model.mapping import MappingSpec
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from rackmodel.studies.ask import Inputs, Said, sweep_points
from rackmodel.studies.run import Points, Progress
from rackmodel.units import parse_quantity
from rackmodel.watch import Watch

__all__ = [
    "Answer",
    "Architecture",
    "InfeasibleError",
    "InputError",
    "Ledger",
    "Mapper",
    "MappingSpec",
    "OutputError",
    "Points",
    "Prices",
    "RackmodelError",
    "Result",
    "Workload",
    "compare",
    "evaluate",
    "price",
    "read",
    "search",
    "sweep",
]

Settings = Mapping[str, Any]
READERS = {"architecture": read_architecture, "workload": read_workload, "mapper": read_mapper, "mapping": read_mapping}


def read(said: Said, *, set: Settings | None = None) -> Architecture | Workload | Mapper | MappingSpec:
    """An input as an object: a name, a path, text, or data whose first key is its kind. Raises InputError."""
    text = _text(said)
    kind = next(iter(said), "") if isinstance(said, Mapping) else _kind(text)
    if kind not in READERS:
        raise InputError(f"'{kind}' is no kind of input", path="<text>", known=list(READERS), given=str(kind))
    return READERS[kind](text, _sets(set))  # type: ignore[return-value]


def _kind(text: str | Path) -> str:
    if isinstance(text, str) and "\n" in text:
        first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
        return first.split(":")[0].strip()
    return kind_of(text)


def _text(said: Said) -> str | Path:
    """What the readers take: data as YAML text. Raises InputError."""
    if not isinstance(said, str | Path | Mapping):
        raise InputError(f"want a name, a path, text or a mapping, got {type(said).__name__}", path="<text>")
    if not isinstance(said, Mapping):
        return said
    try:
        return dumped(plain_data(said))
    except RecursionError:
        raise InputError("holds itself, or is nested too deep", path="<text>") from None


def _sets(settings: Settings | None) -> list[str]:
    """Settings as --set says them; a list or a mapping as YAML on one line. Raises InputError."""
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError("want a mapping of names to values, such as {'accelerators': 8}", path="set")
    found = []
    for name, value in (settings or {}).items():
        try:
            said = plain_data(value)
            text = said if isinstance(said, str) else yaml.safe_dump(said, default_flow_style=True, width=10**6)
        except yaml.representer.RepresenterError:
            raise InputError(f"a {type(value).__name__}, where a number, text, list or mapping is wanted", path=f"set.{name}") from None
        found.append(f"{name}={text.strip().removesuffix('...').strip()}")
    return found


def search(
    architecture: Said | Architecture,
    workload: Said | Workload,
    mapper: Said | Mapper = "auto",
    *,
    set: Settings | None = None,
    minimize: str | Sequence[str] | None = None,
    profile: str | None = None,
    top: int = 1,
    limits: Mapping[str, float | str] | None = None,
    front: str | Sequence[str] = (),
    time_limit: float | str | None = None,
) -> Answer:
    """The best mapping, with a certificate. minimize: an objective, or several in order · top: how many to return · limits: 'power' (W),
    'memory' (bytes), 'latency' (s), 'energy' (J), 'carbon', 'total_carbon' (g), 'money' (usd), 'edp', 'tcdp', numbers or text with a unit ·
    front: figures of a Pareto front to return as well ('latency,energy', or a list) · time_limit: seconds, or text such as '2 min', after
    which the best found is returned, with its gap. Raises InputError, InfeasibleError."""
    watch, goal = Watch(_seconds(time_limit)), minimize if minimize is None or isinstance(minimize, str) else ",".join(minimize)
    front, top = _words(front), _whole(top)
    _check_kinds(profile, limits)
    texts = _texts(architecture, workload, mapper)
    if texts is not None:
        return api.search(*texts, sets=_sets(set), minimize=goal, profile=profile, top=top, limits=limits, front=front, watch=watch)
    machine, graph, third = _inputs(architecture, workload, mapper, "mapper", set)
    return api.search_mapper(machine, graph, third, minimize=goal, profile=profile, top=top, limits=limits, front=front, watch=watch)


def compare(
    architecture: Said | Architecture,
    workload: Said | Workload,
    mappers: Said | Mapper | Sequence[Said | Mapper],
    *,
    set: Settings | None = None,
    minimize: str | Sequence[str] | None = None,
    profile: str | None = None,
    time_limit: float | str | None = None,
) -> list[Result]:
    """The best mapping of each mapper, in their order. time_limit: as `search`, of each. Raises InputError, InfeasibleError."""
    asked: dict[str, Any] = {"set": set, "minimize": minimize, "profile": profile, "time_limit": time_limit}
    several = [mappers] if isinstance(mappers, (str, Path, Mapping, Mapper)) else mappers
    if not isinstance(several, Sequence) or not several:
        raise InputError("want a mapper, or a list of at least one", path="mappers")
    return [search(architecture, workload, mapper, **asked).result for mapper in several]


def evaluate(
    architecture: Said | Architecture,
    workload: Said | Workload,
    mapping: Said | MappingSpec,
    *,
    set: Settings | None = None,
    profile: str | None = None,
) -> Result:
    """One mapping, priced, with its ledger. Raises InputError."""
    _check_kinds(profile)
    texts = _texts(architecture, workload, mapping)
    if texts is not None:
        return api.evaluate(*texts, sets=_sets(set), profile=profile)
    machine, graph, third = _inputs(architecture, workload, mapping, "mapping", set)
    return api.evaluate_mapping(machine, graph, third, profile=profile)


def sweep(
    study: Inputs,
    workload: Inputs | None = None,
    mapper: Inputs | None = None,
    *,
    set: Settings | None = None,
    columns: str | Sequence[str] = (),
    minimize: str | None = None,
    profile: str | None = None,
    output: str | Path | None = None,
    workers: int | str = 1,
    progress: Progress = lambda done, total: None,
) -> Points:
    """Every point of a study, or of an architecture, a workload and a mapper (or lists of them), as frames: `.to_frame()`, `.ledger()`,
    and `.points` with a `.result` each. set: as `search`; a list, or {"linspace": [4, 64, 16]} as in a study's file, is a sweep · columns:
    metrics beside the usual ones · output: a folder whose study.sqlite keeps the points, so that the same call goes on where it was
    stopped · workers: processes of this computer, or the address of a dask.distributed scheduler. Raises InputError, OutputError."""
    _check_kinds(profile)
    asked = {"minimize": minimize, "profile": profile, "set": set or {}, "columns": _words(columns)}
    return sweep_points((study, workload, mapper), asked, output, workers, progress)


def price(
    architecture: Said | Architecture,
    workload: Said | Workload,
    mappings: Said | MappingSpec | Sequence[Said | MappingSpec],
    *,
    set: Settings | None = None,
    profile: str | None = None,
) -> Prices:
    """N mappings at once: [n] seconds, joules and bytes, without ledgers; those of one structure in the same arrays. Raises InputError."""
    _check_kinds(profile)
    machine, graph, _ = _inputs(architecture, workload, None, "mapping", set)
    several = [mappings] if isinstance(mappings, (str, Path, Mapping, MappingSpec)) else mappings
    return api.price(machine, graph, [m if isinstance(m, MappingSpec) else read_mapping(_text(m)) for m in several], profile=profile)


def _seconds(said: float | str | None) -> float | None:
    """Seconds of a time limit. Raises InputError."""
    if said is None:
        return None
    try:
        found = parse_quantity(said.strip(), "second", "30 s") if isinstance(said, str) else float(said)
    except (TypeError, ValueError) as problem:
        raise InputError(str(problem), path="time_limit") from None
    if not 0 < found < inf:
        raise InputError(f"'{said}': want seconds above 0, or text such as '2 min'", path="time_limit")
    return found


def _whole(said: Any) -> int:
    """How many mappings to return. Raises InputError."""
    try:
        return index(said)
    except TypeError:
        raise InputError(f"'{said}': want a whole number", path="top") from None


def _words(said: str | Sequence[str]) -> Sequence[str]:
    """Names, as a list or as text with commas."""
    return [name.strip() for name in said.split(",")] if isinstance(said, str) else said


def _check_kinds(profile: Any, limits: Any = None) -> None:
    """Raise InputError where a profile is no name or text, or limits are no mapping."""
    if not isinstance(profile, str | Path | None):
        raise InputError(f"want a name, a path or text, got {type(profile).__name__}", path="profile")
    if not isinstance(limits, Mapping | None):
        raise InputError("want a mapping of names to values, such as {'latency': '2 s'}", path="limits")


def _texts(*inputs: Any) -> list[Any] | None:
    """The inputs as names, paths or texts, whose faults have a place; None where one is an object already."""
    if any(isinstance(one, (Architecture, Workload, Mapper, MappingSpec)) for one in inputs):
        return None
    return [_text(one) for one in inputs]


def _inputs(architecture: Any, workload: Any, third: Any, kind: str, settings: Settings | None) -> tuple[Architecture, Workload, Any]:
    """The three inputs as objects. Settings reach what is read here. Raises InputError where an object would have to change."""
    texts = _texts(architecture, workload, *([] if third is None else [third]))
    if texts is not None:
        said = {kind: texts[2]} if third is not None else {}
        inputs = read_inputs(texts[0], texts[1], **said, sets=_sets(settings))
        return inputs.architecture, inputs.workload, inputs.mapper if kind == "mapper" else inputs.mapping
    if settings:
        raise InputError("settings change what is read: pass names, paths, text or data, or say `set` to rm.read", path="set")
    machine = architecture if isinstance(architecture, Architecture) else read_architecture(_text(architecture))
    graph = workload if isinstance(workload, Workload) else read_workload(_text(workload))
    reader = read_mapper if kind == "mapper" else read_mapping
    return machine, graph, third if third is None or isinstance(third, (Mapper, MappingSpec)) else reader(_text(third))


def _show_in_notebooks() -> None:
    """Give results, answers, ledgers and sweeps a short text and a table, as report.notebook makes them when one is shown."""
    from importlib import import_module

    def shown(maker: str) -> Any:
        return lambda one: getattr(import_module("rackmodel.report.notebook"), maker)(one)

    inputs = dict.fromkeys((Architecture, Workload, Mapper), "input")  # whose repr is a key of what is remembered
    answers = {Result: "result", Answer: "answer", Ledger: "ledger", Points: "points"}
    for kinds, text in ((inputs, "__str__"), (answers, "__repr__")):
        for kind, name in kinds.items():
            for method, form in ((text, "text"), ("_repr_html_", "html")):
                setattr(kind, method, shown(f"{name}_{form}"))


_show_in_notebooks()
