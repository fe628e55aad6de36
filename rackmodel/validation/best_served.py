"""Rows of the most tokens a second that a submitter got out of a machine (MLPerf Inference, Offline), beside the best deployment that the
search finds there: a submitter tunes the plan, the row does not say it. Watts of the machine where a row tells them (NAME_power).

Requests all come at once, so that nothing limits what one waits; other scenarios limit what 99 of 100 requests wait, which no mean says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.ask import service_of
from rackmodel.serving.offers import Widths
from rackmodel.serving.search import ServingSpace, search_service
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import Refused, look_up, words

SCENARIO = "offline"
UNIT = "tokens/s"
ENGINES = {"tensorrt": "trtllm", "vllm": "vllm", "sglang": "sglang"}
"""Word in what a row says of its software → profile of the engine."""
BEFORE = {"trtllm": "trtllm_engine"}
ROUNDS_BEFORE = ("v3.1", "v4.0", "v4.1")
"""Profile → that of the rounds before TensorRT-LLM ran models without building engines (RECALLED: 0.17, January 2025)."""


@dataclass(frozen=True)
class BestCase:
    """What rows share that ask for the same. sets: of the machine, as --set says them · formats: of weights, and of caches."""

    machine: str
    sets: tuple[str, ...]
    workload: str
    engine: str
    formats: tuple[str, str]
    lengths: tuple[float, float]
    accelerators: int


def best_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why; watts behind the tokens."""
    found: list[ScoredRow] = []
    for row in rows:
        try:
            found += _scored(row, _case(row))
        except (Refused, InputError, InfeasibleError) as problem:
            found.append(ScoredRow(row.id, row.dataset, refused=str(problem)))
    return found


def _case(row: PublishedRow) -> BestCase:
    """What a row asks. Raises Refused."""
    said = words()
    if row.text("scenario").lower() != SCENARIO:
        raise Refused(f"scenario '{row.text('scenario')}': what 99 of 100 requests wait is limited, which no steady state says")
    if row.text("division") not in ("", "closed"):
        raise Refused("an open division: another model, or other limits")
    model = look_up(said.benchmarked, "benchmarked model", row.text("model"))
    if model.refused:
        raise Refused(model.refused)
    if row.text("unit").lower() != UNIT:
        raise Refused(f"a result in '{row.text('unit')}': want {UNIT}")
    engine = next((name for word, name in ENGINES.items() if word in row.text("software").lower()), None)
    if engine is None:
        raise Refused("software whose engine is not known here")
    if row.text("round") in ROUNDS_BEFORE:
        engine = BEFORE.get(engine, engine)
    machine = said.machine(row.text("accelerator"), row.dataset)
    each, nodes = row.number("accelerators_per_node") or 0, row.number("nodes") or 0
    if not each or not nodes:
        raise Refused("no number of accelerators")
    dtype = row.text("weight_dtype") or model.weights
    formats = look_up(said.formats, "format", dtype.lower()).set
    return BestCase(
        machine=machine.machine,
        sets=tuple(f"{path}={value}" for path, value in machine.set.items()),
        workload=model.workload,
        engine=engine,
        formats=(formats.get("weight", ""), model.cache),
        lengths=(model.prompt, row.number("mean_output_tokens_per_sample") or model.output),
        accelerators=int(each * nodes),
    )


@cache
def _best(case: BestCase) -> tuple[float, float, str]:
    """(tokens a second of all accelerators, watts of the machine, the deployment) of the best. Raises InfeasibleError, InputError."""
    service = service_of(case.machine, case.workload, [*case.sets, f"accelerators={case.accelerators}"], case.engine, (*case.lengths, 0.0))
    best = search_service(service, ServingSpace(widths=(Widths(*case.formats),))).best
    rate = best.figures["tokens_per_s_per_accelerator"] * best.accelerators
    degrees = {name: value for name, value in best.to_dict().items() if name in ("tensor", "pipeline", "expert") and value > 1}
    plan = " ".join(f"{name} {value}" for name, value in degrees.items()) or "one accelerator a replica"
    return rate, rate * best.figures["joules_per_token"], plan


def _scored(row: PublishedRow, case: BestCase) -> list[ScoredRow]:
    measured = row.number("result")
    if not measured:
        raise Refused("no result")
    rate, watts, plan = _best(case)
    prompt, output = case.lengths
    rated = ScoredRow(
        id=row.id,
        dataset=row.dataset,
        system=row.text("accelerator"),
        precision=f"{row.text('model')} {case.formats[0]}",
        unit="token/s",
        measured=measured,
        predicted=rate,
        assumptions=(f"{prompt:g} tokens in and {output:g} out; the best deployment: {plan}",),
    )
    drawn = row.number("power_result")
    if not drawn:
        return [rated]
    return [rated, replace(rated, id=f"{row.id} power", dataset=f"{row.dataset}_power", unit="W", measured=drawn, predicted=watts)]
