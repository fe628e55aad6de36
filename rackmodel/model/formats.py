"""In which format a machine multiplies quantised weights: in their own where it has units for that, else as activations are.

    nvfp4 on B200 → nvfp4      nvfp4 on H100, fp8 on A100, int4 → '' (weights alone: they are widened as they are read)

Source: RECALLED: vLLM runs NVFP4 before Blackwell and FP8 before Ada and Hopper by Marlin, weights alone
(vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py, marlin_utils_fp8.py); int4 is of weights alone (`RECIPES`).
"""

from __future__ import annotations

from dataclasses import replace

from rackmodel.errors import InputError
from rackmodel.model.architecture import Architecture
from rackmodel.model.workload import Op, Tensor, Workload

UNITS = {
    "fp8": ("fp8",),
    "fp8_block": ("fp8",),
    "mxfp8": ("fp4",),
    "int8": ("int8", "fp8"),
    "nvfp4": ("fp4",),
    "mxfp4": ("fp4",),
    "fp4": ("fp4",),
}
"""Format → units that multiply it, as parts call their precisions. Units of 4 bit are those with a scale for each block of numbers, as
MXFP8 has. Hopper's and B200's multiply int8 as fast as fp8; B300's, which have next to none of int8 (RECALLED: HGX B300 data sheet), are
priced so, too."""


def multiplied(machine: Architecture, name: str) -> str:
    """The format in which the machine's products of weights in a format are; '' as activations are. One that is not listed is of weights
    alone where it is int4, else as it says."""
    compute = machine.computing[0].compute if machine.computing else None
    units = UNITS.get(name)
    if name.startswith("int4"):
        return ""
    if units is None or compute is None or not compute.precisions:
        return name
    return name if any(unit in compute.precisions for unit in units) else ""


def check_formats(machine: Architecture, workload: Workload) -> None:
    """Raise InputError for products in a format that accelerators of a machine have no units for. (Units as wide multiply other numbers: an
    A100's of int8 no fp8.)"""
    asked = workload.product_format
    for level, _ in [pool.computing for pool in machine.pools if asked and not multiplied(pool, asked)]:
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
