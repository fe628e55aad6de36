"""What can be asked of a result, by name: the columns of a study, the axes of its charts, what its filters look at.

One table, METRICS, of plain figures; and families, a word and what it asks for after a colon:

    latency_s · mfu · total_carbon_g · mapping · certificate              a figure of the result
    total_carbon_g.low · embodied_g.high                                  an end of a figure that has a range
    joules:component=network:phase=forward|backward                       a sum over rows of the ledger
    memory:weights · degree:tp · limit:network node                       a part of what a result lists by name

A figure that a result does not have (carbon without a site, tokens without a model) is None, and in a table an empty cell.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from rackmodel.carbon.assess import footprint
from rackmodel.carbon.bill import Bill, bill_of
from rackmodel.carbon.costing import JobMoney, cost_of, job_money
from rackmodel.carbon.job import Usage
from rackmodel.carbon.metrics import UNITS, Footprint
from rackmodel.carbon.ranges import Ranged
from rackmodel.cost.ledger import FIGURES, KEYS, Component
from rackmodel.errors import InputError
from rackmodel.inputs.carbon_tables import grids_of, tables_of
from rackmodel.model.architecture import Architecture
from rackmodel.model.occupancy import FullPipeline
from rackmodel.model.result import Limit, Result
from rackmodel.report.tables import mapping_words

Value = float | int | str | None


class MeasuredPoint:
    """A result, and what several metrics of it share. bills: of machines seen before, by identity; filled here."""

    def __init__(self, result: Result, bills: dict[int, tuple[Architecture, Bill | None]] | None = None) -> None:
        self.result = result
        self._bills = {} if bills is None else bills

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """What the critical path waits for, longest first."""
        return self.result.limits

    @cached_property
    def bill(self) -> Bill | None:
        """The bill of materials; None where the machine says nothing of what it is made of."""
        machine = self.result.machine
        if machine is None:
            return None
        if id(machine) not in self._bills:
            try:
                self._bills[id(machine)] = machine, bill_of(machine, tables_of(machine))
            except InputError:
                self._bills[id(machine)] = machine, None
        return self._bills[id(machine)][1]

    @cached_property
    def footprint(self) -> Footprint | None:
        """Of a step; None where bill or site are missing."""
        machine = self.result.machine
        if machine is None or machine.site is None or self.bill is None:
            return None
        return footprint(self.result, machine, self.bill, grids_of(machine), work=self.result.tokens or 1.0)

    @cached_property
    def money(self) -> JobMoney | None:
        """Of a step; None where the machine states no price."""
        machine = self.result.machine
        return None if machine is None else job_money(machine, Usage(), self.result.energy_j, self.result.latency_s)

    def carbon(self, name: str) -> Ranged | None:
        """A figure of the footprint by its name there."""
        found = self.footprint
        if found is None:
            return None
        return {"share": found.embodied_share_g}.get(name) or found.figure(name)


@dataclass(frozen=True)
class Metric:
    """One figure. of: what it is, of a result · unit: in SI, '' for words and plain numbers · ranged: whether .low and .high may follow
    (then `of` gives a Ranged)."""

    name: str
    unit: str
    meaning: str
    of: Callable[[MeasuredPoint], Any]
    ranged: bool = False

    def value(self, asked: MeasuredPoint) -> Value:
        """The figure; of a range the middle."""
        found = self.of(asked)
        return found.mid if isinstance(found, Ranged) else found


def _per(value: float | None, over: float | None) -> float | None:
    return value / over if value is not None and over else None


def _plain() -> list[Metric]:
    def of(get: Callable[[Result], Value]) -> Callable[[MeasuredPoint], Value]:
        return lambda asked: get(asked.result)

    def pipeline(result: Result) -> int:
        step = result.mapping.step
        return max(len(result.mapping.stages), step.pipeline.degree if step else 1)

    return [
        Metric("latency_s", "s", "time of a step", of(lambda r: r.latency_s)),
        Metric("energy_j", "J", "energy of a step, all of the machine in use", of(lambda r: r.energy_j)),
        Metric("power_w", "W", "mean power of a step", of(lambda r: _per(r.energy_j, r.latency_s))),
        Metric("carbon_g", "g", "operational carbon of a step's joules, idle time left out", of(lambda r: _float(r.carbon_g))),
        Metric("memory_bytes_per_accelerator", "B", "held by the fullest accelerator", of(lambda r: r.memory_bytes_per_accelerator)),
        Metric("memory_share", "", "of that over what an accelerator may hold", of(lambda r: r.memory_share)),
        Metric("accelerators", "", "in use", of(lambda r: r.accelerators)),
        Metric("tokens", "", "of a step", of(lambda r: r.tokens)),
        Metric("tokens_per_s", "1/s", "tokens a second", of(lambda r: _per(r.tokens, r.latency_s))),
        Metric(
            "tokens_per_s_per_accelerator", "1/s", "tokens a second and accelerator",
            of(lambda r: _per(_per(r.tokens, r.latency_s), r.accelerators)),
        ),
        Metric("joules_per_token", "J", "energy for each token", of(lambda r: r.joules_per_token)),
        Metric("mfu", "", "useful operations over the peak", of(lambda r: r.mfu)),
        Metric("hfu", "", "operations that run over the peak", of(lambda r: r.hfu)),
        Metric("mapping", "", "the mapping in words", of(lambda r: mapping_words(r.mapping))),
        Metric("stages", "", "stages of the pipeline", of(pipeline)),
        Metric("micro_batch", "", "samples of a rank run together", of(lambda r: step.micro_batch if (step := r.mapping.step) else None)),
        Metric("limited_by", "", "what the critical path waits for most", lambda asked: asked.limits[0].what if asked.limits else None),
        Metric("limited_by_share", "", "share of the latency of it", lambda asked: asked.limits[0].share if asked.limits else None),
        Metric("certificate", "", "proven, within x %, best found", of(lambda r: r.certificate.status)),
        Metric("gap", "", "(objective - bound) / objective, 0 = proven", of(lambda r: r.certificate.gap)),
        Metric("space", "", "mappings in the space", of(lambda r: r.certificate.space)),
        Metric("objective", "", "what was minimised", of(lambda r: r.certificate.minimize)),
        Metric("profile", "", "the profile it was priced under", of(lambda r: r.certificate.profile)),
        Metric("warnings", "", "what a reader must know", of(lambda r: "; ".join(r.warnings) or None)),
    ]  # fmt: skip


def _of_carbon() -> list[Metric]:
    def of(name: str) -> Callable[[MeasuredPoint], Ranged | None]:
        return lambda asked: asked.carbon(name)

    def made(asked: MeasuredPoint) -> Ranged | None:
        return asked.bill.total_g() if asked.bill is not None else None

    products = {
        "edp": "energy x delay", "edap": "energy x delay x area", "cdp": "embodied carbon x delay", "cep": "embodied carbon x energy",
        "c2ep": "embodied carbon squared x energy", "ce2p": "embodied carbon x energy squared", "tcdp": "total carbon x delay",
    }  # fmt: skip
    metrics = [
        Metric("embodied_g", "g", "embodied carbon of the machine in use", made, ranged=True),
        Metric("embodied_share_g", "g", "a step's share of it, by time at work", of("share"), ranged=True),
        Metric("operational_g", "g", "carbon of a step's use, idle time included", of("operational"), ranged=True),
        Metric("total_carbon_g", "g", "operational, and the share of embodied carbon", of("carbon"), ranged=True),
        Metric("carbon_g_per_token", "g", "total carbon for each token", lambda a: a.carbon("carbon_per_work") if a.result.tokens else None,
               ranged=True),
    ]  # fmt: skip
    edp = Metric("edp", UNITS["edp"], products.pop("edp"), lambda asked: asked.result.energy_j * asked.result.latency_s)
    return [*metrics, edp, *(Metric(name, UNITS[name], words, of(name), ranged=True) for name, words in products.items())]


def _of_money() -> list[Metric]:
    def capital(asked: MeasuredPoint) -> Ranged | None:
        machine = asked.result.machine
        return None if asked.money is None or machine is None else cost_of(machine, Usage()).cost.capital_usd

    def each(asked: MeasuredPoint) -> Ranged | None:
        return None if asked.money is None or not asked.result.tokens else asked.money.total_usd * (1e6 / asked.result.tokens)

    def full(get: Callable[[FullPipeline], Value]) -> Callable[[MeasuredPoint], Value]:
        return lambda asked: None if asked.result.pipelined is None else get(asked.result.pipelined)

    return [
        Metric("capital_usd", "$", "chips, engineering, servers and building of the machine in use", capital, ranged=True),
        Metric("step_usd", "$", "a step's electricity and its part of the capital", lambda a: a.money and a.money.total_usd, ranged=True),
        Metric("usd_per_million_tokens", "$", "the same for a million tokens", each, ranged=True),
        Metric("full_tokens_per_s", "1/s", "with the pipeline of wired layers full", full(lambda one: one.tokens_per_s)),
        Metric("full_joules_per_token", "J", "energy for each token then", full(lambda one: one.joules_per_token)),
    ]


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


METRICS: dict[str, Metric] = {metric.name: metric for metric in (*_plain(), *_of_carbon(), *_of_money())}
"""Every plain figure by name. Further ones are added here, and are columns, axes and filters at once."""

FAMILIES = {
    **{figure: f"sum over the ledger's rows: {figure}:component=network:phase=forward|backward" for figure in FIGURES},
    "memory": "bytes of what holds them on the fullest accelerator: memory:weights",
    "degree": "of an axis of the mesh: degree:tp",
    "limit": "share of the latency that waits for something: limit:matrix products",
}
"""What asks for a part, with what to write after the colon."""

LEDGER_UNITS = {"joules": "J", "seconds": "s", "exposed_seconds": "s", "amount": ""}

COLUMNS = (
    "latency_s", "energy_j", "power_w", "edp", "carbon_g", "memory_bytes_per_accelerator", "memory_share", "accelerators", "tokens_per_s",
    "joules_per_token", "mfu", "hfu", "limited_by", "limited_by_share", "mapping", "stages", "micro_batch", "certificate", "gap", "profile",
    "warnings",
)  # fmt: skip
"""Columns of a study that asks for none."""


def metric(name: str) -> Metric:
    """The metric that a name stands for. Raises InputError with the known ones."""
    word, colon, rest = name.partition(":")
    plain, dot, end = name.rpartition(".")
    if name in METRICS:
        return METRICS[name]
    if dot and end in ("low", "high") and plain in METRICS:
        return _end(METRICS[plain], end)
    if word in FIGURES:
        return _of_ledger(name, word, rest if colon else "")
    if colon and word in FAMILIES:
        return _part(name, word, rest)
    raise InputError(f"no metric called '{name}'", path="columns", known=[*METRICS, *FAMILIES], given=word)


def _end(whole: Metric, end: str) -> Metric:
    """The low or high end of a metric that has a range. Raises InputError for one that has none."""
    if not whole.ranged:
        known = [name for name, one in METRICS.items() if one.ranged]
        raise InputError(f"'{whole.name}' has no range", path="columns", known=known, given=whole.name)

    def of(asked: MeasuredPoint) -> float | None:
        found = whole.of(asked)
        return None if found is None else float(getattr(found, end))

    return Metric(f"{whole.name}.{end}", whole.unit, f"{end} end of: {whole.meaning}", of)


def check_components(words: Iterable[str], path: str) -> None:
    """Raise InputError for a word that is no component of a ledger: it would choose no row."""
    for word in words:
        if word not in get_args(Component):
            raise InputError(f"no component called '{word}'", path=path, known=get_args(Component), given=word)


def _of_ledger(name: str, figure: str, said: str) -> Metric:
    """A sum over the rows of a ledger that a filter keeps. Raises InputError for an unknown column."""
    where: dict[str, list[str]] = {}
    for part in said.split(":") if said else ():
        key, equals, values = part.partition("=")
        if key not in KEYS or not equals or not values:
            raise InputError(
                f"'{part}': want a column of the ledger and its value", path="columns", known=[f"{k}=..." for k in KEYS], given=part
            )
        where[key] = values.split("|")
    check_components(where.get("component", ()), "columns")
    meaning = f"{figure} of the ledger" + (f" where {', '.join(said.split(':'))}" if said else "")
    return Metric(name, LEDGER_UNITS[figure], meaning, lambda asked: asked.result.ledger.where(**where).total(figure))


def _part(name: str, word: str, part: str) -> Metric:
    """A part of what a result lists by name; one that it does not have counts 0 (an axis: 1)."""

    def degree(asked: MeasuredPoint) -> int:
        axis = asked.result.mapping.axes.get(part)
        return axis.degree if axis is not None else METRICS["stages"].of(asked) if part == "pp" else 1

    parts: dict[str, tuple[str, Callable[[MeasuredPoint], Value]]] = {
        "memory": ("B", lambda asked: asked.result.memory.get(part, 0.0)),
        "degree": ("", degree),
        "limit": ("", lambda asked: next((limit.share for limit in asked.limits if limit.what == part), 0.0)),
    }
    unit, of = parts[word]
    return Metric(name, unit, FAMILIES[word].partition(":")[0], of)


def figures_of(
    result: Result, columns: Iterable[Metric], bills: dict[int, tuple[Architecture, Bill | None]] | None = None
) -> dict[str, Value]:
    """Name → figure of some metrics of one result. bills: kept by who asks of many results on one machine."""
    asked = MeasuredPoint(result, bills)
    return {column.name: column.value(asked) for column in columns}


# -- filters ------------------------------------------------------------------------------------------------------------------

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
}  # fmt: skip


def accepts(value: Value, wanted: Any) -> bool:
    """Whether a filter keeps a value: equal to what is wanted or among a list of it, or as '< 0.9', '>= 8', '!= proven' say. Nothing but
    equality keeps a figure that is not there. Raises InputError for a comparison with no number."""
    if isinstance(wanted, list | tuple | set):
        return any(accepts(value, one) for one in wanted)
    sign = next((sign for sign in _COMPARISONS if isinstance(wanted, str) and wanted.startswith(sign)), None)
    if sign is None:
        return bool(value == wanted) or (value is not None and not isinstance(wanted, bool) and str(value) == str(wanted))
    said = str(wanted)[len(sign) :].strip()
    if sign == "!=":
        return not accepts(value, said)
    try:
        limit = float(said)
    except ValueError:
        raise InputError(f"'{wanted}': want a number after '{sign}'", path="where")
    return isinstance(value, int | float) and _COMPARISONS[sign](value, limit)
