"""Tables and lines for people: a comparison, a breakdown, a summary; numbers in engineering units, 80 columns, plain
when piped. Every figure is a group-by over the ledger.
"""

from __future__ import annotations

import io
import math
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from rackmodel.cost.ledger import COLUMNS, Ledger
from rackmodel.model.certificate import Certificate
from rackmodel.model.mapping import OBJECTIVE_UNITS, MappingSpec, StepSpec
from rackmodel.model.occupancy import FullPipeline
from rackmodel.model.result import Repetition, Result
from rackmodel.report.files import csv_text

COMPONENTS = ("compute", "memory", "network", "static")
NONE = "–"
WIDE = 104
STACKED = 18  # columns of a mapper and its mapping where they share one
_PREFIXES = tuple(zip((1e18, 1e15, 1e12, 1e9, 1e6, 1e3, 1.0, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15), "EPTGMk mµnpf", strict=True))
_DOLLARS = ((1e9, "B$"), (1e6, "M$"), (1e3, "k$"))
_LONG_TIMES = ((2 * 86400.0, 86400.0, "d"), (7200.0, 3600.0, "h"), (600.0, 60.0, "min"))


# -- numbers -----------------------------------------------------------------------------------------------------------


def si_scale(value: float, unit: str) -> tuple[float, str]:
    """(divisor, unit with prefix) that suits `value`: 0.0391 'J' → (1e-3, 'mJ').

    Mantissas lie in 1 to 1000, of seconds in 0.1 to 100, so that step times compare in ms. A million grams of
    CO2e are a tonne, 600 seconds are minutes.
    """
    size = abs(value)
    if not math.isfinite(size) or size == 0:
        return 1.0, unit
    if unit == "s":
        for least, divisor, name in _LONG_TIMES:
            if size >= least:
                return divisor, name
        if size >= 100:
            return 1.0, unit
    least_mantissa = 0.1 if unit == "s" else 1.0
    for factor, prefix in _PREFIXES:
        if unit == "s" and factor > 1:
            continue
        if size * (1 + 1e-12) >= factor * least_mantissa:
            if unit.startswith("gCO2e") and factor >= 1e6:
                return factor, {1e6: "", 1e9: "k", 1e12: "M", 1e15: "G", 1e18: "T"}[factor] + "t" + unit[1:]
            return factor, prefix.strip() + unit
    return _PREFIXES[-1][0], _PREFIXES[-1][1] + unit


def format_si(value: float | None, unit: str, digits: int = 4) -> str:
    """'39.08 mJ', '0.522 ms', '3.35 TB/s', '1.2 gCO2e': `digits` significant digits at most; '–' for None, nan and inf."""
    if value is None or not math.isfinite(value):
        return NONE
    rounded = float(f"{value:.{digits - 1}e}")
    divisor, name = si_scale(rounded, unit)
    return f"{format_number(value / divisor, digits)} {name}".rstrip()


def format_number(value: float, digits: int = 4) -> str:
    """At most `digits` significant digits, no trailing zeros, no exponent between 1e-4 and 1e6."""
    if not math.isfinite(value):
        return NONE
    if value == 0:
        return "0"
    size = abs(float(f"{value:.{digits - 1}e}"))
    if not 1e-4 <= size < 1e6:
        return f"{value:.{digits - 1}g}"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def dollars(value: float, digits: int = 4) -> str:
    """'186.2 M$', '0.0247 $': no m$ beside M$."""
    scale, unit = next(((size, unit) for size, unit in _DOLLARS if abs(value) >= size), (1.0, "$"))
    return f"{format_number(value / scale, digits)} {unit}"


def amount(value: float, unit: str, digits: int = 4) -> str:
    """A figure in its unit."""
    return dollars(value, digits) if unit == "$" else format_si(value, unit, digits)


def format_objective(value: float, goal: str, digits: int = 4) -> str:
    """'12.34 mgCO2e', '47.67 J s': what is minimised, in its unit; a product of units takes no prefix."""
    unit = OBJECTIVE_UNITS.get(goal, "")
    return f"{format_number(value, digits)} {unit}" if " " in unit else amount(value, unit, digits)


def format_percent(share: float | None) -> str:
    """'12 %', '3.1 %', '<0.1 %'; '–' where there is nothing to share."""
    if share is None or not math.isfinite(share):
        return NONE
    percent = 100 * share
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.05:
        return "<0.1 %"
    return f"{percent:.0f} %" if abs(percent) >= 9.95 else f"{percent:.1f} %"


# -- words -------------------------------------------------------------------------------------------------------------


def mapping_words(mapping: MappingSpec) -> str:
    """'tp 8', 'pp 2 × tp 16', 'dp 4 × tp 8, weights at memoryx': degrees outermost first, then what else was decided."""
    degrees = {name: axis.degree for name, axis in mapping.axes.items() if axis.degree > 1}
    stages = max(len(mapping.stages), mapping.step.pipeline.degree if mapping.step else 1)
    if stages > 1 and "pp" not in degrees:
        degrees = {"pp": stages, **degrees}
    words = [" × ".join(f"{name} {degree}" for name, degree in degrees.items()) or "one accelerator"]
    homes: dict[str, None] = {}
    for home in mapping.homes.values():
        if not home.at and all(mapping.axes[axis].degree == 1 for axis in home.axes if axis in mapping.axes):
            continue  # sharded over one accelerator: whole
        stage = "ZeRO-3" if home.param == "shard" else "ZeRO-2" if home.grad == "shard" else "ZeRO-1" if home.state == "shard" else ""
        if home.at:
            homes[f"weights at {home.at}"] = None
        elif stage:
            homes[f"{stage} over {', '.join(home.axes)}"] = None
    words += list(homes)
    if mapping.recompute != "none":
        words.append(f"{mapping.recompute} recompute")
    words += _step_words(mapping.step) if mapping.step else []
    return ", ".join([*words, *([mapping.note] if mapping.note else [])])


def _step_words(step: StepSpec) -> list[str]:
    """How micro-batches and layers run: 'micro-batch 2, interleaved x 6'."""
    words = [f"micro-batch {step.micro_batch}"]
    if step.pipeline.degree > 1:
        words.append(step.schedule + (f" × {step.interleave}" if step.interleave > 1 else ""))
    if step.layers:
        least, most = min(step.layers), max(step.layers)
        part = "chunk" if step.interleave > 1 else "stage"
        words.append(f"layers {least} to {most} a {part}" if least < most else f"{least} layers a {part}")
    if step is not None and step.pools:
        words.append(f"stages on {' then '.join(step.pools)}")
    if step.offload:
        words.append(f"{' and '.join(step.offload)} at {step.host}")
    return words


def machine_words(result: Result) -> str:
    """'dgx_a100 × 512': a machine and its accelerators in use."""
    return f"{result.architecture} × {result.accelerators}"


def several_machines(results: Sequence[Result]) -> bool:
    """Whether results have to be told apart by their machine."""
    return len({(result.architecture, result.accelerators) for result in results}) > 1


def limit_words(result: Result) -> list[str]:
    """['matrix products 81 %', 'memory gpu 10 %']: what the latency waits for, longest first; from the second on at least 1 % of it."""
    shown = [limit for number, limit in enumerate(result.limits[:3]) if number == 0 or limit.share >= 0.01]
    return [f"{limit.what} {format_percent(limit.share)}" for limit in shown]


def shares(ledger: Ledger, figure: str = "joules") -> dict[str, float | None]:
    """Component → its share of a figure's total; None where the total is 0."""
    groups, total = ledger.group(("component",), figure), ledger.total(figure)
    return {name: groups.get((name,), 0.0) / total if total else None for name in COMPONENTS}


# -- tables ------------------------------------------------------------------------------------------------------------


def comparison_table(results: Sequence[Result], *, width: int | None = None, several: bool | None = None) -> Table:
    """One row a mapper and machine. width: columns there are (default: the terminal's, 80 when there is none) · several: whether to
    name the machines (default: where they differ).

    Below 104 columns machine, mapper and mapping share a column and the shares of the energy are whole percents.
    """
    several = several_machines(results) if several is None else several
    if (terminal_width() if width is None else width) >= WIDE + 20 * several:
        heads, rows = _cost_rows(results, several)
        table = _table(caption="shares are of the energy", gap=1)
        for head in heads:
            table.add_column(head, justify="left" if head in _LEFT else "right", no_wrap=head != "mapping", overflow="fold")
        for row in rows:
            table.add_row(*row)
        return table
    carbon = any(result.carbon_g is not None for result in results)
    names, rows = [], []
    for result in results:
        name = _stacked(result.mapper, mapping_words(result.mapping))
        names.append(f"{machine_words(result)}\n{name}" if several else name)
        cells = [
            format_si(result.latency_s, "s"),
            format_si(result.energy_j, "J"),
            *([format_si(result.carbon_g, "g", 3)] if carbon else []),
        ]
        rows.append([*cells, format_si(result.memory_bytes_per_accelerator, "B", 3), result.certificate.status])
    figures = ["latency", "energy", *(["carbon"] if carbon else []), "memory\n/accel.", "certif."]
    there = terminal_width() if width is None else width
    words = max((len(word) for name in names for word in name.split()), default=0)
    taken = sum(1 + max(len(text) for text in (*head.split(), *column)) for head, *column in zip(figures, *rows, strict=True))
    split = there >= words + taken + len(" comp mem net stat")  # shares of the energy have room
    table = _table(caption="comp, mem, net, stat: shares of the energy, %" if split else None, gap=0)
    table.add_column("machine,\nmapper: mapping" if several else "mapper: mapping", overflow="fold")
    for head in (*figures[:-1], *(("comp", "mem", "net", "stat") if split else ())):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("certif.", no_wrap=True)
    for result, name, row in zip(results, names, rows, strict=True):
        table.add_row(name, *row[:-1], *(map(_whole, shares(result.ledger).values()) if split else ()), row[-1])
    return table


def limits_table(results: Sequence[Result], *, several: bool | None = None) -> Table:
    """What limits each result, and what makes unlike machines comparable, where it is known. several: as in `comparison_table`."""
    several = several_machines(results) if several is None else several
    heads, rows = _limit_rows(results)
    table = _table(caption=None, gap=1)
    table.add_column("machine, mapper" if several else "mapper", overflow="fold")
    for head in heads:
        table.add_column(head, justify="left" if head in _LEFT else "right", overflow="fold")
    for result, row in zip(results, rows, strict=True):
        name = f"{machine_words(result)}\n{result.mapper}" if several else result.mapper
        table.add_row(name, *row)
    return table


def _cost_rows(results: Sequence[Result], several: bool) -> tuple[list[str], list[list[str]]]:
    """Time, energy, carbon, memory and proof of each."""
    carbon = ["carbon"] if any(result.carbon_g is not None for result in results) else []
    machine = ["machine"] if several else []
    heads = [*machine, "mapper", "mapping", "latency", "energy", *carbon, "memory/accel.", *COMPONENTS, "certificate"]
    rows = []
    for result in results:
        row = [machine_words(result)] if several else []
        row += [result.mapper, mapping_words(result.mapping), format_si(result.latency_s, "s"), format_si(result.energy_j, "J")]
        row += [format_si(result.carbon_g, "gCO2e")] if carbon else []
        row += [format_si(result.memory_bytes_per_accelerator, "B"), *map(format_percent, shares(result.ledger).values())]
        rows.append([*row, result.certificate.status])
    return heads, rows


def _limit_rows(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """What limits each (a line each), and per-unit figures that any of them has."""
    optional = {
        "memory used": [format_percent(result.memory_share) for result in results],
        "MFU": [format_percent(result.mfu) for result in results],
        "HFU": [format_percent(result.hfu) for result in results],
        "energy/token": [format_si(result.joules_per_token, "J") for result in results],
    }
    there = {head: cells for head, cells in optional.items() if any(cell != NONE for cell in cells)}
    rows = [["\n".join(limit_words(result)) or NONE, *(cells[n] for cells in there.values())] for n, result in enumerate(results)]
    return ["limited by", *there], rows


_LEFT = ("machine", "mapper", "mapping", "limited by", "certificate")


def _stacked(mapper: str, words: str) -> str:
    """'tensor: tp 8', or on lines of their own where that is long; a line ends before a × or after a comma."""
    if len(mapper) + len(words) + 2 <= STACKED:
        return f"{mapper}: {words}"
    glued = ", ".join(part.replace(" × ", "\0×\xa0").replace(" ", "\xa0") for part in words.split(", ")).replace("\0", " ")
    lines = textwrap.wrap(glued, STACKED, break_long_words=False, break_on_hyphens=False)
    return "\n".join([mapper, *lines]).replace("\xa0", " ")


def _whole(share: float | None) -> str:
    return NONE if share is None else "0" if share == 0 else "<1" if share < 0.005 else f"{100 * share:.0f}"


def breakdown_table(ledger: Ledger, by: Iterable[str] = ("component", "level", "action"), *, width: int | None = None) -> Table:
    """Energy, amount, occupied and exposed seconds by key columns, most energy first, and their total.

    Key columns that do not fit beside the figures are joined into one, so that no word is broken. An amount is shown where a group has
    one unit. 'exposed' adds up to the latency; 'seconds' is as if nothing overlapped. width: columns there are (default: the terminal's).
    """
    columns = tuple(by)
    joules, seconds, exposed = (ledger.group(columns, figure) for figure in ("joules", "seconds", "exposed_seconds"))
    amounts = ledger.group((*columns, "unit"), "amount")
    total = ledger.total()
    natural = sum(1 + max(map(len, (column, *(key[place] for key in joules)))) for place, column in enumerate(columns))
    joined = natural + _FIGURES_WIDE > (terminal_width() if width is None else width)
    table = _table(caption=None, gap=1)
    for column in (" ".join(columns),) if joined else columns:
        table.add_column(column)
    for head in ("amount", "energy", "share", "seconds", "exposed"):
        table.add_column(head, justify="right", no_wrap=True)
    for key in sorted(joules, key=lambda k: (-joules[k], -exposed[k], k)):
        own = [(unit, amount) for (*group, unit), amount in amounts.items() if tuple(group) == key]
        amount = format_si(own[0][1], _UNITS.get(own[0][0], own[0][0])) if len(own) == 1 else NONE
        share = joules[key] / total if total else None
        row = (amount, format_si(joules[key], "J"), format_percent(share), format_si(seconds[key], "s"), format_si(exposed[key], "s"))
        table.add_row(*((" ".join(key),) if joined else key), *row)
    table.add_section()
    tail = ("", format_si(total, "J"), format_percent(1.0 if total else None))
    times = (format_si(ledger.total("seconds"), "s"), format_si(ledger.total("exposed_seconds"), "s"))
    if columns:
        table.add_row("total", *[""] * (0 if joined else len(columns) - 1), *tail, *times)
    return table


_FIGURES_WIDE = 50
"""Columns that amount, energy, share and both times take."""

_UNITS = {"byte": "B", "flop": "FLOP", "operation": "FLOP", "second": "s", "joule": "J"}


def result_lines(result: Result) -> list[str]:
    """A result in a few lines of at most 80 columns: what, how long, how much, by what, and how sure."""
    mapping = result.mapping
    figures = [f"latency {format_si(result.latency_s, 's')}", f"energy {format_si(result.energy_j, 'J')}"]
    if result.carbon_g is not None:
        figures.append(f"carbon of use {format_si(result.carbon_g, 'gCO2e')}")
    lines = [
        f"{result.workload} on {result.architecture}, {mapping.accelerators} accelerator{'s' if mapping.accelerators > 1 else ''}",
        f"{result.mapper}: {mapping_words(mapping)}",
        ", ".join(figures),
        *filter(None, [rate_words(result)]),
        f"memory {format_si(result.memory_bytes_per_accelerator, 'B')} an accelerator" + _parts(result.memory),
        *(f"warning: {said}" for said in result.warnings),
    ]
    for figure, name in (("joules", "energy"), ("exposed_seconds", "latency")):
        found = {part: share for part, share in shares(result.ledger, figure).items() if share}
        if found:
            most = _most_of(result) if figure == "exposed_seconds" else ""
            lines.append(f"{name}: " + ", ".join(f"{part} {format_percent(share)}" for part, share in found.items()) + most)
    lines += [_repetition(one) for one in result.repeated]
    lines += [] if result.pipelined is None else [_full(result.pipelined)]
    lines.append(_proof(result.certificate))
    lines.append(f"profile {mapping.profile}" + (f": {result.certificate.note}" if result.certificate.note else ""))
    return wrapped(lines)


def _most_of(result: Result) -> str:
    """'; memory pe alone 99 %': the level that is waited for most, where several of its kind are."""
    first = result.limited_by
    kind = "" if first is None else first.what.partition(" ")[0]
    if first is None or result.machine is None or kind not in ("memory", "network"):
        return ""
    several = sum(getattr(level, kind) is not None for level in result.machine.tree.walk()) > 1
    return f"; {first.what} alone {format_percent(first.share)}" if several else ""


def wrapped(lines: Iterable[str]) -> list[str]:
    """Lines of at most 80 columns."""
    whole = textwrap.TextWrapper(80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [piece for line in lines for piece in whole.wrap(line) or [""]]


def rate_words(result: Result) -> str:
    """'MFU 57 %, 298 k tokens/s (1,164 an accelerator), 1.2 mJ a token': what a planner asks first; empty where none is known."""
    words = [f"MFU {format_percent(result.mfu)}"] if result.mfu else []
    if result.tokens and result.latency_s > 0:
        rate = result.tokens / result.latency_s
        each = f" ({_grouped(rate / result.accelerators)} an accelerator)" if result.accelerators > 1 else ""
        words += [f"{_grouped(rate)} tokens/s{each}", f"{format_si(result.energy_j / result.tokens, 'J')} a token"]
    return ", ".join(words)


def _grouped(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else format_number(value)


def _full(full: FullPipeline) -> str:
    """What the machine makes when the pipeline through its layers is full."""
    low, high = full.tokens_per_s_range
    rate = f"{format_si(full.tokens_per_s, 'token/s')} ({format_si(low, 'token/s', 3)} to {format_si(high, 'token/s', 3)})"
    parts = ", ".join(f"{name} {format_si(seconds, 's', 3)}" for name, seconds in sorted(full.seconds.items(), key=lambda one: -one[1]))
    spill = f"; {format_percent(full.spilled)} of keys and values spill from the cache" if full.spilled else ""
    return (
        f"pipeline full: {full.in_flight} tokens in flight, {rate}, {format_si(full.joules_per_token, 'J')} a token; "
        f"a token occupies {parts}{spill}"
    )


def _parts(memory: dict[str, float]) -> str:
    held = ", ".join(f"{name} {format_si(size, 'B')}" for name, size in memory.items() if size)
    return f" ({held})" if held else ""


def _repetition(one: Repetition) -> str:
    """What every member of an axis does alike, and what that costs."""
    axes = f"ax{'i' if len(one.axes) == 1 else 'e'}s {', '.join(one.axes)}"
    cost = [f"{format_si(one.seconds, 's')} a stage", format_si(one.joules, "J"), f"{format_si(one.bytes, 'B')} an accelerator"]
    return f"repeated by all members of {axes}: {', '.join(one.operations)}; {', '.join(cost)}"


def _proof(certificate: Certificate) -> str:
    """What was searched and how sure the answer is; of a mapping that was given, that it was."""
    if not certificate.searched:
        return f"{certificate.status}: the figures are exact, nothing says that they are the best"
    mappings = f"{certificate.evaluated} of {format_number(certificate.space)} mappings priced"
    seconds = f" in {format_si(certificate.seconds, 's', 2)}" if certificate.seconds else ""
    misfits = ", ".join(f"{format_number(count)} infeasible by {resource}" for resource, count in certificate.infeasible.items() if count)
    solver = f" by {certificate.solver}" if certificate.solver else ""
    goal = certificate.minimize
    told = "" if goal in ("latency", "energy", "memory") else f" {format_objective(certificate.objective, goal)}"  # told already
    line = f"least {goal}{told}, {certificate.status}: {mappings}{solver}{seconds}"
    return f"{line}; {misfits}" if misfits else line


def ledger_csv(ledger: Ledger) -> str:
    """The ledger as CSV text, a row a charge, figures to the last digit."""
    return csv_text(COLUMNS, (list(row.to_dict().values()) for row in ledger))


# -- the terminal ------------------------------------------------------------------------------------------------------


def console(file: IO[str] | None = None) -> Console:
    """A console on `file` (default: standard output): no colour, and as wide as COLUMNS says or 80, unless it is a terminal."""
    stream = sys.stdout if file is None else file
    return Console(file=stream, highlight=False, markup=False) if stream.isatty() else _plain(stream, _columns())


def _columns() -> int:
    """Columns that the environment asks for, within reason."""
    said = os.environ.get("COLUMNS", "")
    return min(max(int(said), 60), 400) if said.isdecimal() else 80


def _plain(stream: IO[str], width: int) -> Console:
    return Console(file=stream, width=width, color_system=None, highlight=False, markup=False)


def terminal_width() -> int:
    """Columns of standard output; 80 when it is not a terminal."""
    return console().width


def render(renderable: RenderableType, width: int = 80) -> str:
    """A table as plain text of at most `width` columns, without spaces at the ends of lines."""
    text = io.StringIO()
    _plain(text, width).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _table(caption: str | None, gap: int) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    table.caption, table.caption_justify = caption, "left"
    return table
