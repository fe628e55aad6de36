"""In which format a machine multiplies quantised weights: in their own where it has units for that, else as activations are.

    nvfp4 on B200 → nvfp4      nvfp4 on H100, fp8 on A100, int4 → '' (weights alone: they are widened as they are read)

Source: RECALLED: vLLM runs NVFP4 before Blackwell and FP8 before Ada and Hopper by Marlin, weights alone
(vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py, marlin_utils_fp8.py); int4 is of weights alone (`RECIPES`).
"""

from __future__ import annotations

from rackmodel.model.architecture import Architecture

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
