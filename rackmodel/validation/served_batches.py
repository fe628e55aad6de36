"""Rows of single batches: seconds of one step that prefills all prompts (NAME_prompt), and of a decode step of all of them (NAME)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rackmodel.errors import InfeasibleError, InputError
from rackmodel.serving.steps import Deployment, Steps
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.servers import Server, engine_of, run_of, server_of
from rackmodel.validation.words import Refused

ENGINE, FORMAT = "vllm", "bf16"
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
            alike.setdefault((row.text("model"), row.text("gpu"), int(row.whole("tp") or 1)), []).append(row)
    for key, own in alike.items():
        try:
            found += _scored(key, own)
        except (Refused, InputError, InfeasibleError) as problem:
            found += [ScoredRow(row.id, row.dataset, refused=str(problem)) for row in own]
    return found


def _scored(key: tuple[str, str, int], rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    name, gpu, tensor = key
    server = _server(rows[0], name, gpu.replace("-", "_"), tensor)
    engine = engine_of(server)
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


def _server(row: PublishedRow, model: str, system: str, tensor: int) -> Server:
    """The server of a batch: with the settings that are known of where its row is from. Raises Refused."""
    cells = {"backend": ENGINE, "model_path": model, "system": system, "precision": FORMAT}
    cells |= {"isl": "1", "osl": "1"}  # of a served run, whose requests nothing asks for here
    run = run_of(replace(row, cells={**cells, "origin": row.text("source")}), 1.0)
    return server_of(run, Deployment(tensor=tensor, expert_tensor=tensor), float(tensor), "together")[0]
