"""Columns of a training run's row: those that count, those that document it, and what is said of any other."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

COUNTED = (
    *("id", "dataset", "model", "arch", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len"),
    *("gpu", "n_gpus", "tp", "pp", "dp", "cp", "ep", "etp", "vpp", "sp", "schedule", "sharding"),
    *("gbs", "mbs", "grad_accum", "precision", "recompute"),
    *("iteration_time_s", "derived_iteration_time_s", "tokens_per_s", "tokens_per_s_per_gpu"),
    *("tflops_per_gpu", "hw_tflops_per_gpu", "mfu_pct", "hfu_pct", "memory_gib", "power_w"),
)
DOCUMENTS = ("status", "source", "confidence", "missing", "notes", "interconnect", "params_b", "fwd_ms", "bwd_ms")
MEANT = {
    "sequence_parallel": "sp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "zero": "sharding",
    "zero_stage": "sharding",
    "fsdp": "sharding",
    "virtual_pp": "vpp",
    "interleave": "vpp",
    "dtype": "precision",
    "checkpointing": "recompute",
    "activation_checkpointing": "recompute",
    "recomputation": "recompute",
    "gradient_accumulation": "grad_accum",
}
"""What others call a column → ours."""


def left_alone(cells: Mapping[str, str]) -> str:
    """A sentence about filled cells of a row whose columns count for nothing and are known for nothing else; '' where there is none."""
    strange = [name for name, text in cells.items() if name not in COUNTED and name not in DOCUMENTS and (text or "").strip()]
    return f"left alone: {', '.join(map(_with_meant, strange))}" if strange else ""


def _with_meant(column: str) -> str:
    word = column.lower()
    meant = MEANT.get(word) or next(iter(get_close_matches(word, COUNTED, 1, 0.75)), None)
    return f"column '{column}'" + (f" (did you mean '{meant}'?)" if meant else "")
