"""Rows whose sizes are one text, `m=16;k=2048;n=6144`: each is priced as a row of a table with a column a size; other kernels are
refused by name.

    gemm                        m, n, k
    mha/decode, mha/prefill     heads-key heads-elements of a head; batch_size and kv_len, or seq_len
    mla/decode, mla/prefill     heads-latent key-rotated part, or heads-plain part-rotated part; the same
    grouped_gemm/...            experts' products up and down, each a call of its own (up_proj_us, down_proj_us), of one rank of num_gpus
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rackmodel.validation.attention import attention_rows
from rackmodel.validation.experts import expert_rows
from rackmodel.validation.products import product_rows
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import Refused, words

Sizes = Mapping[str, str]
PRICERS: dict[str, Callable[[Sequence[PublishedRow]], list[ScoredRow]]] = {
    "product": product_rows,
    "attention": attention_rows,
    "latent attention": attention_rows,
    "expert products": expert_rows,
}
"""Kind of rows with a column a size → what prices them."""


def shaped_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    found: dict[int, ScoredRow] = {}
    spelled: dict[str, dict[int, PublishedRow]] = {}
    for number, row in enumerate(rows):
        try:
            one = spelled_out(row)
        except Refused as problem:
            found[number] = ScoredRow(row.id, row.dataset, refused=str(problem))
        else:
            spelled.setdefault(one.kind, {})[number] = one
    for kind, own in spelled.items():
        found |= dict(zip(own, PRICERS[kind](list(own.values())), strict=True))
    return [found[number] for number in range(len(rows))]


def spelled_out(row: PublishedRow) -> PublishedRow:
    """The same with a column a size, of the kind that such rows are. Raises Refused."""
    kernel = row.text("kind")
    if kernel not in KERNELS:
        raise Refused(f"kernels '{kernel}' are not priced yet")
    sizes = dict(part.split("=", 1) for part in row.text("shape").split(";") if "=" in part)
    kind, cells = KERNELS[kernel](row, sizes)
    return replace(row, kind=kind, cells={**row.cells, "op": "", **cells})


def _product(row: PublishedRow, sizes: Sizes) -> tuple[str, Sizes]:
    _check_latency(row, "a product")
    precision = sizes.get("dtype") or _assumed(row, "gemm_dtype")
    if not precision:
        raise Refused("no precision of a product")
    return "product", {**{name: sizes.get(name, "") for name in ("m", "n", "k")}, "gemm_dtype": precision}


def _attention(row: PublishedRow, sizes: Sizes) -> tuple[str, Sizes]:
    _check_latency(row, "attention")
    heads, kv_heads, head = _heads(row)
    cells = {"num_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head, "kernel_source": _assumed(row, _of(row))}
    return "attention", {**cells, **_tokens(row, sizes)}


def _latent(row: PublishedRow, sizes: Sizes) -> tuple[str, Sizes]:
    _check_latency(row, "latent attention")
    heads, kept, rotated = _heads(row)
    said, decodes = words().latent, "decode" in row.text("kind")
    if said is None or (kept, rotated) != (f"{said.key if decodes else said.head:g}", f"{said.rope:g}"):
        raise Refused(f"no sizes of latent attention with {kept} and {rotated}")
    phase = "generation" if decodes else "context"
    framework = {"framework": _assumed(row, "framework"), "version": _assumed(row, "version")}
    return "latent attention", {"num_heads": heads, "phase": phase, **framework, **_tokens(row, sizes)}


def _experts(row: PublishedRow, sizes: Sizes) -> tuple[str, Sizes]:
    part = row.text("metric").removesuffix("_proj_us")
    if row.text("metric") not in ("up_proj_us", "down_proj_us"):
        raise Refused(f"'{row.text('metric')}' is no time of experts' products")
    ranks, own = _count(sizes, "num_gpus"), _count(sizes, "batch_size_per_gpu" if "decode" in row.text("kind") else "seq_len_per_gpu")
    names = {"hidden_size": "hidden_size", "inter_size": "intermediate_size", "topk": "topk", "num_experts": "num_experts"}
    cells = {name: sizes.get(said, "") for name, said in names.items()}
    called = {"moe_part": part, "kernel_source": _assumed(row, _of(row)), "moe_dtype": _assumed(row, "moe_dtype")}
    return "expert products", {**cells, **called, "num_tokens": str(ranks * own), "moe_tp_size": "1", "moe_ep_size": str(ranks)}


KERNELS: dict[str, Callable[[PublishedRow, Sizes], tuple[str, Sizes]]] = {
    "gemm": _product,
    "mha/decode": _attention,
    "mha/prefill": _attention,
    "mla/decode": _latent,
    "mla/prefill": _latent,
    "grouped_gemm/decode": _experts,
    "grouped_gemm/prefill": _experts,
}
"""What rows call a kernel → (the kind of rows that it is, cells) of one. Each raises Refused."""


def _tokens(row: PublishedRow, sizes: Sizes) -> Sizes:
    """Sequences, new tokens, those before them, and the width of what is kept."""
    kept = {"kv_cache_dtype": sizes.get("kv_dtype") or sizes.get("dtype", "")}
    if "decode" in row.text("kind"):
        return {"batch_size": sizes.get("batch_size", ""), "q_len": "1", "past_kv_len": str(_count(sizes, "kv_len") - 1), **kept}
    return {"batch_size": "1", "q_len": sizes.get("seq_len", ""), "past_kv_len": "0", **kept}


def _count(sizes: Sizes, name: str) -> int:
    """A size that is a whole number. Raises Refused."""
    if not sizes.get(name, "").isdecimal():
        raise Refused(f"no {name}")
    return int(sizes[name])


def _heads(row: PublishedRow) -> tuple[str, str, str]:
    """The three numbers of a row's heads. Raises Refused."""
    match row.text("head_config").split("-"):
        case [one, two, three] if all(number.isdecimal() for number in (one, two, three)):
            return one, two, three
    raise Refused(f"no heads '{row.text('head_config')}'")


def _check_latency(row: PublishedRow, what: str) -> None:
    """Raises Refused where a row measured something else."""
    if row.text("metric") not in ("", "latency_us"):
        raise Refused(f"'{row.text('metric')}' is no time of {what}")


def _of(row: PublishedRow) -> str:
    return f"kernel_source of {row.text('kind')}"


def _assumed(row: PublishedRow, column: str) -> str:
    """What the data set takes an absent column to be."""
    assumed = words().dataset(row.dataset).assume.get(column)
    return assumed.value if assumed is not None else ""
