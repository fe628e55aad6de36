"""The `quantization_config` of a published config → widths of weights, of products and of caches, and which weights it leaves as they are.

    fp8, fbgemm_fp8            8 bits, in blocks where weight_block_size says so
    mxfp4                      experts alone, multiplied as activations are
    gptq, awq                  bits of weights alone, a scale of 16 bits for each group
    modelopt                   quant_algo FP8 or NVFP4
    compressed-tensors         bits, type and groups of config_groups; multiplied as activations are where these are not quantised

Names of modules that are left out (modules_to_not_convert, ignored_layers, exclude_modules, ignore) are names, shell patterns or, after
`re:`, regular expressions. Sources: RECALLED, transformers, utils/quantization_config.py; vllm-project/compressed-tensors, quant_args.py;
NVIDIA/TensorRT-Model-Optimizer, hf_quant_config.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from rackmodel.errors import InputError
from rackmodel.inputs.marked import Marked, short

METHODS = ("fp8", "fbgemm_fp8", "mxfp4", "gptq", "awq", "modelopt", "compressed-tensors")
ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "FP8_PB_WO": "fp8_block", "W4A16_AWQ": "int4_g128", "INT4_AWQ": "int4_g128"}
"""quant_algo of modelopt → precision of weights."""

GROUPS = (32, 64, 128)
"""Elements that share a scale of int4."""

FORMATS = ("int 4", "int 8", "float 4", "float 8")

LEFT_OUT = ("modules_to_not_convert", "ignored_layers", "exclude_modules", "ignore")

MODULES = {"attention": "self_attn.o_proj", "shared": "mlp.shared_experts.down_proj", "dense": "mlp.down_proj"}
"""Part of a layer → a module of it, as checkpoints call them."""

BEFORE = ("model", "language_model.model", "model.language_model")
"""What stands before a layer's modules, in checkpoints of text and of more."""

WEIGHTS = {"shared": ("WPG", "WPU", "WPD"), "dense": ("WG", "WU", "WD", "W1", "W2")}
"""Part of a layer → its weights; attention has all that are neither these nor experts'."""


@dataclass(frozen=True)
class Quantised:
    """weight, product: precisions; product None: the activations' · experts: whether they alone are quantised · kv: of caches, '' = not
    said · left: parts of a layer (MODULES) that are left in 16 bits."""

    weight: str
    product: str | None
    experts: bool = False
    kv: str = ""
    left: frozenset[str] = field(default_factory=frozenset)

    def precision(self) -> dict[str, str]:
        """Of a workload file."""
        alone = self.experts or self.left == frozenset(MODULES)
        weights = {"weight": "bf16", "experts": self.weight} if alone else {"weight": self.weight}
        return {"activation": "bf16"} | weights | {"product": self.product or "bf16"} | ({"kv_cache": self.kv} if self.kv else {})

    def leaves(self, weight: str) -> bool:
        """Whether a weight that is not an expert's is left in 16 bits, where others are not. weight: its name in a workload."""
        if self.experts or self.left == frozenset(MODULES):
            return False
        name = re.sub(r"_(\d+|next)$", "", weight)
        part = next((part for part, names in WEIGHTS.items() if name in names), "attention")
        return part in self.left


def quantised(said: Marked, layers: int) -> Quantised:
    """What a `quantization_config` says. layers: of the model. Raises InputError for a method or a format that is not known."""
    method = said.child("quant_method")
    if method is None or method.text not in METHODS:
        fact = "no quant_method" if method is None else f"unknown quant_method '{short(str(method.value))}'"
        where = said.where if method is None else method.where
        given = None if method is None else method.text
        raise InputError(fact, where=where, path="quantization_config.quant_method", known=list(METHODS), given=given)
    left = _left(said, layers)
    kv = "fp8" if _eight_bits(said.child("kv_cache_scheme")) or _text(said, "kv_cache_quant_algo") == "FP8" else ""
    if method.text == "mxfp4":
        return Quantised("mxfp4", None, experts=True)
    if method.text in ("gptq", "awq"):
        return Quantised(_whole_numbers(said, _number(said, "bits"), _number(said, "group_size")), None, left=left)
    if method.text == "compressed-tensors" or (method.text == "modelopt" and said.child("quant_algo") is None):
        weight, product = _grouped(said)
        return Quantised(weight, product, kv=kv, left=left)
    if method.text == "modelopt":
        weight = _of_algorithm(said)
        return Quantised(weight, None if weight.startswith("int4") else weight, kv=kv, left=left)
    blocks = said.child("weight_block_size")
    weight = "fp8_block" if blocks is not None and blocks.items else "fp8"
    return Quantised(weight, weight, kv=kv, left=left)


def _of_algorithm(said: Marked) -> str:
    """Precision of weights of a `quant_algo`."""
    algorithm = said.child("quant_algo")
    assert algorithm is not None
    if algorithm.text not in ALGORITHMS:
        fact = f"unknown quant_algo '{short(str(algorithm.value))}'"
        raise InputError(fact, where=algorithm.where, path="quantization_config.quant_algo", known=list(ALGORITHMS), given=algorithm.text)
    return ALGORITHMS[algorithm.text]


def _grouped(said: Marked) -> tuple[str, str | None]:
    """Precisions of weights and products of `config_groups`, which must agree."""
    groups = said.child("config_groups")
    found = {_one_group(said, one) for one in (groups.mapping.values() if groups is not None else ())}
    if len(found) != 1:
        formats = " and ".join(sorted(weight for weight, _ in found)) or "none"
        fact = f"config_groups of one format are known here (these have {formats})"
        raise InputError(fact, where=(groups or said).where, path="quantization_config.config_groups")
    return next(iter(found))


def _one_group(said: Marked, group: Marked) -> tuple[str, str | None]:
    weights, inputs = group.child("weights"), group.child("input_activations")
    if weights is None or not weights.mapping:
        raise InputError("a group without weights", where=group.where, path="quantization_config.config_groups")
    bits, kind, size = _number(weights, "num_bits"), _text(weights, "type"), _number(weights, "group_size")
    if kind == "float" and bits == 8:
        weight = "fp8_block" if _text(weights, "strategy") == "block" else "fp8"
    elif kind == "float" and bits == 4 and size in (16, 32):
        weight = "nvfp4" if size == 16 else "mxfp4"
    elif kind == "int":
        weight = _whole_numbers(weights, bits, size)
    else:
        fact = f"weights of {bits:g} bits of type '{short(kind)}' are not known"
        raise InputError(fact, where=weights.where, path="quantization_config.config_groups", known=FORMATS)
    both = inputs is not None and bool(inputs.mapping)
    return weight, weight if both else None


def _whole_numbers(said: Marked, bits: float, size: float) -> str:
    """int4 with the scales of its groups, or int8."""
    if bits == 8:
        return "int8"
    if bits != 4:
        fact = f"weights of {bits:g} bits are not known"
        raise InputError(fact, where=said.where, path="quantization_config.bits", known=["4", "8"], given=f"{bits:g}")
    if size not in GROUPS:
        return "int4"  # a scale a channel
    return f"int4_g{size:g}"


def _left(said: Marked, layers: int) -> frozenset[str]:
    """Parts that are left as they are in half of the layers or more."""
    patterns = [str(item.value) for key in LEFT_OUT for item in _items(said.child(key))]
    numbers = range(max(layers, 1))

    def often(module: str) -> bool:
        return 2 * sum(_any_is(patterns, f"layers.{number}.{module}") for number in numbers) >= len(numbers)

    return frozenset(part for part, module in MODULES.items() if often(module))


def _any_is(patterns: Sequence[str], module: str) -> bool:
    return any(_is(pattern, f"{before}.{module}") for pattern in patterns for before in BEFORE)


def _is(pattern: str, module: str) -> bool:
    """Whether a pattern stands for a module, or for one that it is in."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), module) is not None
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")
    return f".{pattern}." in f".{module}."


def _items(child: Marked | None) -> Iterator[Any]:
    yield from (child.items if child is not None else ())


def _text(said: Marked, key: str) -> str:
    child = said.child(key)
    return "" if child is None or child.value is None else str(child.value)


def _number(said: Marked, key: str) -> float:
    child = said.child(key)
    return float(child.value) if child is not None and isinstance(child.value, int | float) else 0.0


def _eight_bits(said: Marked | None) -> bool:
    return said is not None and bool(said.mapping) and _number(said, "num_bits") == 8 and _text(said, "type") == "float"
