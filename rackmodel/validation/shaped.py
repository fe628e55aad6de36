"""Rows whose sizes are one text, `m=16;k=2048;n=6144`: products are priced as others, other kernels are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackmodel.validation.products import product_rows
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow
from rackmodel.validation.words import Refused, words

PRODUCT = "gemm"


def shaped_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    found: dict[int, ScoredRow] = {}
    products: dict[int, PublishedRow] = {}
    for number, row in enumerate(rows):
        try:
            products[number] = _product(row)
        except Refused as problem:
            found[number] = ScoredRow(row.id, row.dataset, refused=str(problem))
    found |= dict(zip(products, product_rows(list(products.values())), strict=True))
    return [found[number] for number in range(len(rows))]


def _product(row: PublishedRow) -> PublishedRow:
    """The same with a column a size. Raises Refused."""
    if row.text("kind") != PRODUCT:
        raise Refused(f"kernels '{row.text('kind')}' are not priced yet")
    if row.text("metric") not in ("", "latency_us"):
        raise Refused(f"'{row.text('metric')}' is no time of a product")
    sizes = dict(part.split("=", 1) for part in row.text("shape").split(";") if "=" in part)
    assumed = words().dataset(row.dataset).assume.get("gemm_dtype")
    precision = sizes.get("dtype") or (assumed.value if assumed is not None else "")
    if not precision:
        raise Refused("no precision of a product")
    said = {name: sizes.get(name, "") for name in ("m", "n", "k")}
    return replace(row, cells={**row.cells, **said, "op": "", "gemm_dtype": precision})
