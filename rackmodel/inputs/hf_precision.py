"""The `quantization_config` of a published config → widths of weights, of products and of caches, and which weights it leaves as they are.

    fp8, fbgemm_fp8            8 bits, in blocks where weight_block_size says so
    mxfp4                      experts alone, multiplied as activations are
    gptq, awq                  bits of weights alone, a scale of 16 bits for each group
    modelopt                   quant_algo FP8 or NVFP4
    bitnet                     three values in 2 bits, multiplied in int8
    compressed-tensors         bits, type and groups of config_groups; products as wide as activations: 16 bits where it says none

Names of modules that are left out (modules_to_not_convert, ignored_layers, exclude_modules, ignore) are names, shell patterns or, after
`re:`, regular expressions; so are those that config_groups aim at (targets; `Linear` is all of them). Another key, or a format of
weights or caches that no precision here is, is refused. Sources: RECALLED, transformers, utils/quantization_config.py;
vllm-project/compressed-tensors, quant_args.py; NVIDIA/TensorRT-Model-Optimizer, hf_quant_config.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from rackmodel.errors import InputError
from rackmodel.inputs.marked import Marked, place_of, short

METHODS = ("fp8", "fbgemm_fp8", "mxfp4", "gptq", "awq", "modelopt", "compressed-tensors", "bitnet")
EXPERTS = {"fp4": "mxfp4", "fp8": ""}
"""expert_dtype of a config → precision of experts' weights beside the others, '' = as these. Source: DeepSeek-V4's, each 32 with a scale
(NVIDIA-NeMo/Megatron-Bridge, tests/unit_tests/models/deepseek/test_deepseek_v4_bridge.py)."""

ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "FP8_PB_WO": "fp8_block", "W4A16_AWQ": "int4_g128", "INT4_AWQ": "int4_g128"}
"""quant_algo of modelopt → precision of weights."""

GROUPS = (32, 64, 128)
"""Elements that share a scale of int4."""

CHANNEL = (-1, 0)
"""group_size of a scale for each channel."""

BLOCK = [128, 128]
"""Weights of fp8_block that share a scale."""

CACHES = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}
"""kv_cache_quant_algo → precision of caches."""

READ = (
    "quant_method",
    "quantization_mode",
    "bits",
    "group_size",
    "quant_algo",
    "kv_cache_quant_algo",
    "kv_cache_scheme",
    "config_groups",
    "weight_block_size",
)
"""Keys that are read, beside LEFT_OUT."""

HARMLESS = re.compile(
    r"activation_(scheme|scale_ub)|fmt|scale_fmt|format|checkpoint_format|quantization_status|global_compression_ratio|producer|version|"
    r"model_name_or_path|model_file_base_name|dataset|tokenizer|damp_\w+|desc_act|static_groups|sym|true_sequential|zero_point|do_fuse|"
    r"fuse_max_seq_len|modules_to_fuse|modules_in_block_to_quantize|block_name_to_quantize|module_name_preceding_first_block|batch_size|"
    r"pad_token_id|use_(cuda_fp16|exllama)|exllama_config|max_input_length|cache_block_outputs|model_seqlen|is_marlin_format|meta|"
    r"pack_dtype|backend|quant_type|dequantize|linear_class|use_rms_norm|rms_norm_eps"
)
"""Keys that say how weights were made narrow, or which kernel takes them: not how wide they are."""

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
    said · left: parts of a layer (MODULES) that are left in 16 bits · apart: precision of experts where it is another, ''."""

    weight: str
    product: str | None
    experts: bool = False
    kv: str = ""
    left: frozenset[str] = field(default_factory=frozenset)
    apart: str = ""

    def precision(self) -> dict[str, str]:
        """Of a workload file."""
        alone = self.experts or self.left == frozenset(MODULES)
        weights = {"weight": "bf16", "experts": self.weight} if alone else {"weight": self.weight}
        weights |= {"experts": self.apart} if self.apart else {}
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
    if not said.mapping:
        raise InputError(f"'{short(str(said.plain()))}': want a mapping", where=said.where, path="quantization_config")
    method = said.child("quant_method")
    if method is None or method.text not in METHODS:
        fact = "no quant_method" if method is None else f"unknown quant_method '{short(str(method.value))}'"
        where = said.where if method is None else method.where
        given = None if method is None else method.text
        raise InputError(fact, where=where, path="quantization_config.quant_method", known=list(METHODS), given=given)
    _known_keys(said)
    left = _left(said, layers)
    kv = _of_caches(said)
    if method.text == "bitnet":
        return _of_three_values(said)
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
    if blocks is not None and blocks.value and blocks.plain() != BLOCK:
        fact = f"scales of {short(str(blocks.plain()))} weights are not known"
        raise InputError(fact, where=blocks.where, path="quantization_config.weight_block_size", known=[str(BLOCK)])
    weight = "fp8_block" if blocks is not None and blocks.value else "fp8"
    return Quantised(weight, weight, kv=kv, left=left)


def _of_three_values(said: Marked) -> Quantised:
    """Weights of three values, packed in 2 bits and multiplied in int8. Raises InputError where they are not packed."""
    mode = said.child("quantization_mode")
    if mode is not None and mode.value != "offline":
        fact = f"'{short(str(mode.plain()))}': weights that are kept whole and rounded in each step are not known"
        raise InputError(fact, where=mode.where, path="quantization_config.quantization_mode", known=["offline"])
    return Quantised("2 bit", "int8")


def _known_keys(said: Marked) -> None:
    """Raise InputError for a key that may matter and is not understood."""
    for key, child in said.mapping.items():
        inert = child.value is None or child.value is False or child.value == 0 or child.value in ([], {}, "")
        if not (inert or key in READ or key in LEFT_OUT or HARMLESS.fullmatch(key)):
            fact = "unknown key: nothing here says whether it changes widths"
            where, known = said.keys.get(key, child.where), sorted({*READ, *LEFT_OUT})
            raise InputError(fact, where=where, path=f"quantization_config.{key}", known=known, given=key)


def _of_caches(said: Marked) -> str:
    """Precision of caches; '' = not said."""
    scheme, algorithm = said.child("kv_cache_scheme"), said.child("kv_cache_quant_algo")
    if scheme is not None and scheme.value:
        form = f"{_text(scheme, 'type')} {_number(scheme, 'num_bits'):g}"
        found = {"float 8": "fp8", "int 8": "int8", "float 4": "nvfp4"}.get(form)
        if found is None:
            fact = f"caches of '{short(form)}' are not known"
            raise InputError(fact, where=scheme.where, path="quantization_config.kv_cache_scheme", known=["float 4", "float 8", "int 8"])
        return found
    if algorithm is None or not algorithm.value:
        return ""
    if algorithm.text not in CACHES:
        fact = f"unknown kv_cache_quant_algo '{short(str(algorithm.plain()))}'"
        path = "quantization_config.kv_cache_quant_algo"
        raise InputError(fact, where=algorithm.where, path=path, known=list(CACHES), given=algorithm.text)
    return CACHES[algorithm.text]


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
    found = {_one_group(one) for one in (groups.mapping.values() if groups is not None else ())}
    if len(found) != 1:
        formats = " and ".join(sorted(weight for weight, _ in found)) or "none"
        fact = f"config_groups of one format are known here (these have {formats})"
        raise InputError(fact, where=(groups or said).where, path="quantization_config.config_groups")
    return next(iter(found))


def _one_group(group: Marked) -> tuple[str, str | None]:
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
    if inputs is None or not inputs.mapping:
        return weight, None
    inner, same = _number(inputs, "num_bits"), _text(inputs, "type") or kind
    if inner == bits and same == kind:
        return weight, weight
    product = {("float", 8.0): "fp8", ("int", 8.0): "int8"}.get((same, inner))
    if product is None:
        fact = f"products of activations of {inner:g} bits of type '{short(same)}' with weights of {bits:g} are not known"
        raise InputError(fact, where=inputs.where, path="quantization_config.config_groups", known=["float 8", "int 8"])
    return weight, product


def _whole_numbers(said: Marked, bits: float, size: float) -> str:
    """int4 with the scales of its groups, or int8."""
    if bits == 8:
        return "int8"
    if bits != 4:
        fact = f"weights of {bits:g} bits are not known"
        raise InputError(fact, where=place_of(said, ["bits"]), path="quantization_config.bits", known=["4", "8"], given=f"{bits:g}")
    if size in CHANNEL:
        return "int4"
    if size not in GROUPS:
        known = [str(one) for one in (*GROUPS, CHANNEL[0])]
        fact = f"scales of {size:g} weights of int4 are not known"
        raise InputError(fact, where=place_of(said, ["group_size"]), path="quantization_config.group_size", known=known)
    return f"int4_g{size:g}"


def _left(said: Marked, layers: int) -> frozenset[str]:
    """Parts that are left as they are in half of the layers or more. Raises InputError for a pattern that cannot be read."""
    groups = said.child("config_groups")
    ignored = [item for key in LEFT_OUT for item in _items(said.child(key))]
    aimed = [item for group in (groups.mapping.values() if groups is not None else ()) for item in _items(group.child("targets"))]
    for item in (*ignored, *aimed):
        _readable(item)
    patterns, targets = [str(item.value) for item in ignored], [str(item.value) for item in aimed if item.value != "Linear"]
    every = len(targets) < len(aimed) or not aimed
    numbers = range(max(layers, 1))

    def is_left(module: str) -> bool:
        return _any_is(patterns, module) or not (every or _any_is(targets, module))

    def often(module: str) -> bool:
        return 2 * sum(is_left(f"layers.{number}.{module}") for number in numbers) >= len(numbers)

    return frozenset(part for part, module in MODULES.items() if often(module))


def _readable(item: Marked) -> None:
    text = str(item.value)
    try:
        re.compile(text.removeprefix("re:") if text.startswith("re:") else "")
    except re.error as problem:
        raise InputError(f"'{short(text)}' is no pattern: {problem.msg}", where=item.where, path="quantization_config")


def _any_is(patterns: Sequence[str], module: str) -> bool:
    return any(_is(pattern, f"{before}.{module}") for pattern in patterns for before in BEFORE)


def _is(pattern: str, module: str) -> bool:
    """Whether a pattern stands for a module, or for one that it is in."""
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), module) is not None
    if any(sign in pattern for sign in "*?["):
        return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")
    return f".{pattern}." in f".{module}."


def _items(child: Marked | None) -> Iterator[Marked]:
    yield from (child.items if child is not None else ())


def _text(said: Marked, key: str) -> str:
    child = said.child(key)
    return "" if child is None or child.value is None else str(child.value)


def _number(said: Marked, key: str) -> float:
    child = said.child(key)
    if child is None or child.value is None:
        return 0.0
    if not isinstance(child.value, int | float):
        raise InputError(f"'{short(str(child.plain()))}' is no number", where=child.where, path=f"quantization_config.{key}")
    return float(child.value)
