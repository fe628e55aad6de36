"""Rows of single batches: seconds of one step that prefills all prompts (NAME_prompt), and of a decode step of all of them (NAME)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.inputs import read_profile
from rackmodel.serving.offers import Service, Widths, engine_of
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.steps import machine_of
from rackmodel.validation.words import Refused, words

ENGINE = "vllm"
NOTE = "priced as an engine's steps (vLLM), weights in bf16: the rows name no engine"
MODELLED = "a share of the prompt's time of another row, not a measurement"


def batch_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    alike: dict[tuple[str, str, int], list[PublishedRow]] = {}
    found: list[ScoredRow] = []
    for row in rows:
        if row.text("gpu").endswith("pcap"):  # of a power cap: the prompt's time x 1.3, the token's unchanged
            found.append(ScoredRow(row.id, row.dataset, refused=MODELLED))
        else:
            alike.setdefault((row.text("model"), row.text("gpu"), int(row.number("tp") or 1)), []).append(row)
    for key, own in alike.items():
        try:
            found += _scored(key, own)
        except (Refused, InputError, InfeasibleError) as problem:
            found += [ScoredRow(row.id, row.dataset, refused=str(problem)) for row in own]
    return found


def _scored(key: tuple[str, str, int], rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    name, gpu, tensor = key
    said = words()
    model, machine = said.served_model(name), said.machine(gpu.replace("-", "_"), rows[0].dataset)
    if model.refused:
        raise Refused(model.refused)
    sets = tuple(f"workload.sizes.{index}={value}" for index, value in model.sizes.items())
    service = Service(machine_of(*machine.named), model.workload, sets, read_profile(ENGINE), 1.0, 1.0)
    engine = engine_of(service, Deployment(tensor=tensor, expert_tensor=tensor), Widths())
    prompt, batch, output = (
        np.array([row.number(column) or 1.0 for row in rows]) for column in ("prompt_tokens", "batch", "output_tokens")
    )
    prefill = engine.price(Steps.of(prefill=prompt * batch, prompts=batch)).seconds
    decode = engine.price(Steps.of(decodes=batch, context=prompt + output / 2.0)).seconds
    sides = (("_prompt", "prompt_time_ms", prefill), ("", "time_per_token_ms", decode))
    return [
        ScoredRow(row.id, f"{row.dataset}{ending}", gpu, name, "s", measured * 1e-3, float(seconds[place]), (NOTE,))
        for ending, column, seconds in sides
        for place, row in enumerate(rows)
        if (measured := row.number(column) or 0.0)
    ]
