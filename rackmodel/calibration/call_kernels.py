"""Which kernels libraries take for which messages of an all-reduce, as their sources say: what a fit need not guess between two sizes.

vLLM and SGLang (up to 0.5.10) have two kernels of their own, for GPUs that NVLink joins:

    one stage    each member reads the messages of all and sums them: two members, up to four below 512 KiB, up to eight below 256 KiB
    two stages   each sums its share of the message and then reads the shares of the others

by a grid of 36 blocks of 512 threads that takes 16 bytes a thread, and goes over its work in passes:

    bytes of a message a pass of two stages = members x 36 x 512 x 16

so that their time has steps (vllm-project/vllm 036bb68, csrc/custom_all_reduce.cuh, `allreduce`; measured by its pull requests 24111 and
37756: four B200 take 17, 18, 27, 27, 35 and 43 us for 0.5, 1, 1.5, 2, 3 and 4 MiB, one to four passes). Both end at 8 MiB, SGLang's with
it, vLLM's before (its custom_all_reduce.py, `should_custom_ar`; what rows of 8 MiB say of SGLang). Where vLLM found symmetric memory, its
kernels end earlier, by `CUSTOM_ALL_REDUCE_MAX_SIZES`, and PyTorch's kernels take over up to `SYMM_MEM_ALL_REDUCE_MAX_SIZES` (vLLM 00d618a,
all_reduce_utils.py). All beyond is NCCL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackmodel.model.calls import age_of

KIB, MIB = 1024.0, 1024.0**2
BELOW = 0.999  # of a size that the next kernel does
WHOLE_GRID = 36 * 512 * 16.0  # bytes that every thread of the two libraries' kernels takes once
OWN_END = 8 * MIB
LAST_OF_SGLANG = "0.5.10"  # release of SGLang with these kernels
SYMMETRIC = "0.18.0"  # release of vLLM from which rows show PyTorch's kernels on symmetric memory

CAPABILITIES = {
    "a100": "8.0",
    **dict.fromkeys(("h100", "h200", "h20"), "9.0"),
    **dict.fromkeys(("b200", "gb200"), "10.0"),
    **dict.fromkeys(("b300", "gb300"), "10.3"),
}
"""GPU's name up to `_` → its compute capability: those that NVLink joins."""

LINKS = {"8.0": 300e9, "9.0": 450e9, "10.0": 900e9, "10.3": 900e9}
"""Capability → bytes a second and direction of a GPU's NVLink (data sheets of A100, H100, B200, B300)."""

COPIED = 0.88
"""Of that, what a copy to another GPU reaches: 396 of 450 GB/s on an H200 (h200_p2p of stas00/ml-engineering 744d01e)."""

SUMMING = ("9.0", "10.0", "10.3")
"""Capabilities whose NVSwitch sums, of three members and more and no integers of 8 bit (NVIDIA/nccl, src/transport/nvls.cc, ncclNvlsInit;
src/include/device.h, ncclNvlsSupported)."""

OWN_ENDS = {
    "9.0": {2: 64 * MIB, 4: 32 * MIB, 6: 0.5 * MIB, 8: 0.25 * MIB},
    "10.0": {2: 2 * MIB, 4: 2 * MIB, 6: MIB, 8: MIB},
    "10.3": {2: 4 * MIB, 4: 4 * MIB, 6: 8 * MIB, 8: 4 * MIB},
}
"""Capability → members → size at which vLLM's own kernels end where it found symmetric memory."""

SYMMETRIC_ENDS = {
    "9.0": {2: 64 * MIB, 4: 32 * MIB, 6: 64 * MIB, 8: 64 * MIB},
    "10.0": {2: 8 * MIB, 4: 32 * MIB, 6: 128 * MIB, 8: 128 * MIB},
    "10.3": {2: 4 * MIB, 4: 32 * MIB, 6: 32 * MIB, 8: 64 * MIB},
}
"""The same of PyTorch's kernels on symmetric memory."""

ENDED_WITHOUT = {("gb200", "0.14.0"), ("h200_sxm", "0.14.1.dev1+gd68209402")}
"""Rows in which vLLM's kernels end early and NCCL's follow, as nothing said there is: 4 MiB of four GB200 take 38 us, 256 KiB of eight H200
19.3. Where NCCL's own kernels change between is not known."""

UNLIMITED = {("gb200", "0.19.0"), ("gb200", "0.24.0")}
"""Rows of a later release without symmetric memory: four GB200 take 25 us for 4 MiB, the kernel of the smaller messages (it says so)."""


@dataclass(frozen=True, kw_only=True)
class KnownKernel:
    """A kernel for messages of up to `up_to` bytes, from where the one before ends. passes: bytes that its blocks take at once, 0 = it does
    not go in passes, or nothing says so · link: bytes a second and direction of a member, of one that does."""

    up_to: float
    passes: float = 0.0
    link: float = 0.0


def known_kernels(library: str, releases: Sequence[str], gpu: str, kind: str, members: int) -> tuple[KnownKernel, ...]:
    """The kernels of a library in the order of their messages; () where its source was not read. gpu: as rows name it."""
    capability = CAPABILITIES.get(gpu.lower().split("_")[0])
    if kind != "all_reduce" or capability is None or members not in (2, 4, 6, 8):
        return ()
    if library == "sglang" and age_of(releases[0]) <= age_of(LAST_OF_SGLANG):
        return _own(members, OWN_END, LINKS[capability])
    if library == "vllm":
        return _of_vllm(releases, gpu.lower(), capability, members)
    return ()


def least_slope(gpu: str, kind: str, members: int, widths: Sequence[int]) -> float:
    """s/byte of a message that a collective takes at least, by any kernel: what comes in over a member's link, of an all-reduce twice,
    but where the switch may sum. gpu: as rows name it; 0 where its link is not known · widths: of an element, in bits."""
    capability = CAPABILITIES.get(gpu.lower().split("_")[0])
    if capability is None or kind == "send":
        return 0.0
    summed = capability in SUMMING and members > 2 and min(widths) > 8
    twice = kind == "all_reduce" and not summed
    return (2.0 if twice else 1.0) * (members - 1) / members / (COPIED * LINKS[capability])


def _of_vllm(releases: Sequence[str], gpu: str, capability: str, members: int) -> tuple[KnownKernel, ...]:
    named = {(gpu, release) for release in releases}
    if named & ENDED_WITHOUT:
        return ()
    link = LINKS[capability]
    if age_of(releases[0]) < age_of(SYMMETRIC) or named & UNLIMITED or capability not in OWN_ENDS:
        return _own(members, BELOW * OWN_END, link)
    own = _own(members, BELOW * min(OWN_END, OWN_ENDS[capability][members]), link)
    end = BELOW * SYMMETRIC_ENDS[capability][members]
    return (*own, KnownKernel(up_to=end)) if end > own[-1].up_to else own


def _own(members: int, end: float, link: float) -> tuple[KnownKernel, ...]:
    if members == 2:
        return (KnownKernel(up_to=end),)
    one_stage = BELOW * (512 if members <= 4 else 256) * KIB
    if end <= one_stage:
        return (KnownKernel(up_to=end),)
    return (KnownKernel(up_to=one_stage), KnownKernel(up_to=end, passes=members * WHOLE_GRID, link=link))
