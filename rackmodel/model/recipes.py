"""Low precision in one word: which weights of products are kept how narrow, and at which width they are multiplied.

What an engine does for a recipe besides, scaling and casting activations, is a fact of the kernel that multiplies (`quantise` of a part's
`products`, the whole call of `grouped`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """weight: precision of weights, those of experts among them · product: width at which they are multiplied, which may name a
    family of kernels (fp8_block), None = the activations'."""

    weight: str
    product: str | None = None


RECIPES: dict[str, Recipe] = {
    "fp8": Recipe(weight="fp8", product="fp8"),
    "fp8_blockwise": Recipe(weight="fp8_block", product="fp8_block"),
    "mxfp8": Recipe(weight="mxfp8", product="mxfp8"),
    "nvfp4": Recipe(weight="nvfp4", product="nvfp4"),
    "mxfp4": Recipe(weight="mxfp4"),
    "int8": Recipe(weight="int8", product="int8"),
    "int4": Recipe(weight="int4"),
}
"""Source of the widths: names of vLLM's and TensorRT-LLM's quantisations (RECALLED); mxfp4 and int4 are of weights alone."""
