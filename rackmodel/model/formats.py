"""In which format a machine multiplies quantised weights: in their own where it has units for that, else as activations are.

    nvfp4 on B200 → nvfp4      nvfp4 on H100, fp8 on A100, int4 → '' (weights alone: they are widened as they are read)

Source: RECALLED: vLLM runs NVFP4 before Blackwell and FP8 before Ada and Hopper by Marlin, weights alone
(vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py, marlin_utils_fp8.py); int4 is of weights alone (`RECIPES`).
"""

from __future__ import annotations

from dataclasses import replace

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.resources import width
from rackmodel.model.workload import Op, Tensor, Workload

UNITS = {
    "fp8": ("fp8",),
    "fp8_block": ("fp8",),
    "mxfp8": ("fp4",),
    "int8": ("int8", "fp8"),
    "nvfp4": ("fp4",),
    "mxfp4": ("fp4",),
    "fp4": ("fp4",),
    **dict.fromkeys(("int4", "int4_g32", "int4_g64", "int4_g128"), ("int4",)),
}
"""Format → units that multiply it, as parts call their precisions, beside those called as it is. Units of 4 bit are those with a scale for
each block of numbers, as MXFP8 has. Hopper's and B200's multiply int8 as fast as fp8; B300's, which have next to none of int8 (RECALLED:
HGX B300 data sheet), are priced so, too."""


def multiplied(machine: Architecture, name: str) -> str:
    """The format in which the machine's products of weights in a format are; '' as activations are, as of int4 on any machine."""
    return "" if name.startswith("int4") or not has_units(machine, name) else name


def has_units(machine: Architecture, name: str) -> bool:
    """Whether accelerators multiply a format: by units called so or listed for it, or by those of its width that say no format ('8 bit').
    Those that say one rate for all do, and one that is not listed is multiplied as it says."""
    compute = machine.computing[0].compute if machine.computing else None
    if name not in UNITS or compute is None or not compute.precisions:
        return True
    return any(unit in (name, *UNITS[name]) or (unit[0].isdigit() and width(unit) == width(name)) for unit in compute.precisions)


def check_formats(machine: Architecture, workload: Workload) -> None:
    """Raise InputError for products in a format that accelerators of a machine have no units for. (Units as wide multiply other numbers: an
    A100's of int8 no fp8.)"""
    asked = workload.product_format
    for level, _ in [pool.computing for pool in machine.pools if asked and not has_units(pool, asked)]:
        way = f"of weights alone, without `recipe` and `product`: precision: {{weight: {asked}}}"
        fact = f"'{level.name}' multiplies no {asked} ({way})"
        raise InputError(fact, path="precision.product", known=list(level.compute.precisions) if level.compute is not None else ())


def check_operands(machine: Architecture, workload: Workload) -> None:
    """Raise InputError for a product whose operands are both as narrow as a format that accelerators of a machine have no units for."""
    for op in workload.ops.values():
        operands = [workload.tensors[access.tensor] for access in op.ins]
        widest = max((tensor.bits for tensor in operands), default=0)
        asked = bool(workload.product_bits) and any(tensor.kind == "weight" and tensor.bits < widest for tensor in operands)
        product = op.kind.name == "einsum" and len(operands) > 1 and all(tensor.bits for tensor in operands)  # (no lookup)
        if product and not asked:  # (what is asked for `check_formats` looks at)
            for tensor in operands:
                if tensor.bits == widest and tensor.numbers in UNITS:
                    _check_units(machine, op, tensor)


def _check_units(machine: Architecture, op: Op, tensor: Tensor) -> None:
    """Raise InputError for accelerators of a machine that have no units for the numbers of an operand, the widest of its product."""
    for level, _ in [pool.computing for pool in machine.pools if not multiplied(pool, tensor.numbers)]:
        way = "precision: {activation: 16 bit} leaves weights alone narrow"
        fact = f"'{level.name}' multiplies no {tensor.numbers}, as which {op.name} multiplies {tensor.name} ({way})"
        kind = {"weight": "weight", "kv_cache": "kv_cache"}.get(tensor.kind, "activation")
        raise InputError(fact, path=f"precision.{kind}", known=list(level.compute.precisions) if level.compute is not None else ())


def as_activations(whole: Workload) -> Workload:
    """The workload, and those within it, with products as wide as activations: its weights alone are narrow, as engines serve a format that
    a machine has no units for."""
    sections = tuple(replace(section, workload=as_activations(section.workload)) for section in whole.sections)
    prompts, module = (None if part is None else as_activations(part) for part in (whole.prompts, whole.module))
    return replace(whole, product_bits=0, product_family="", product_format="", sections=sections, prompts=prompts, module=module)
