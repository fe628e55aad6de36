"""Rows of collectives beside the networks' prices: one mesh of a machine, messages in arrays.

A row that names the library that made the call is priced by what the network knows of it; any other by the fastest of NCCL's algorithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackmodel.arrays import Array
from rackmodel.cost.network.collectives import best_collective, send
from rackmodel.errors import InputError, nearest
from rackmodel.inputs import machine_calls
from rackmodel.model.architecture import Architecture
from rackmodel.model.calls import LibraryCall, Mode, release_before
from rackmodel.model.placement import Mesh
from rackmodel.model.resources import width
from rackmodel.validation.alike import alike_rows
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.rows import PublishedRow
from rackmodel.validation.score import ScoredRow, kernel_row
from rackmodel.validation.words import MachineWords, Refused, look_up, spelt, words

OPERATIONS = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "a2a": "all_to_all",
    "alltoallv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send_recv": "send",
    "send": "send",
    "p2p": "send",
}
"""What rows call an operation → what the engine does."""

NCCL = ("ring", "tree", "in_network")
"""Algorithms of the library that rows without a word were measured with; the fastest counts (RECALLED: its tuner)."""

ALGORITHMS = {"nvls": "in_network", "collnet": "in_network", "sharp": "in_network", "tree": "tree"}
"""What rows call an algorithm, beside rings → the engine's."""

UNSAID = ("", "auto", "default", "nccl", "nccl-tests", "none", "n/a", "-", "tuner", "ll", "ll128", "simple")
"""What says nothing of an algorithm: its library's choice, or a protocol alone (RECALLED: NCCL_PROTO)."""

LEAST_NVLS = 2
"""Members up to which NCCL does without NVLS, whatever it is told (NVIDIA/nccl 178b6b759074, src/transport/nvls.cc, ncclNvlsInit)."""

SHARE = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Bus bandwidth x time = share x (p - 1) / p x message (nccl-tests, its page on performance, RECALLED)."""


LIBRARIES = {"nccl": "nccl", "nccl-tests": "nccl", "vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}
"""What rows call a library → what `calls` of a network do."""


@dataclass(frozen=True)
class CollectiveCase:
    """What rows share whose messages are priced together. call: the library that made it · bits: of an element · note: of which other
    release it is priced as."""

    machine: MachineWords
    operation: str
    members: int
    nodes: int
    algorithms: tuple[str, ...]
    call: LibraryCall | None = None
    bits: int = 16
    note: str = ""


@dataclass(frozen=True)
class MeasuredCall:
    """A row as calibration reads it. call: whose it is, None where nothing says so · bits: of an element · bytes: of the message."""

    call: LibraryCall | None
    operation: str
    bits: int
    members: int
    nodes: int
    bytes: float
    seconds: float


_Asked = tuple[CollectiveCase, float, float]
"""(what it shares with others, bytes, seconds measured) of a row."""


def collective_rows(rows: Sequence[PublishedRow]) -> list[ScoredRow]:
    """Each row scored, or refused with why."""
    return alike_rows(rows, _case, _alike, _priced)


def _alike(asked: _Asked) -> tuple[object, ...]:
    """What messages share that are priced together."""
    case = asked[0]
    call = case.call.model_dump_json() if case.call is not None else ""
    return *case.machine.named, case.operation, case.members, case.nodes, case.algorithms, call, case.bits


def _priced(rows: Sequence[PublishedRow], own: Sequence[tuple[int, _Asked]]) -> dict[int, list[ScoredRow]]:
    """Messages of one collective. Raises InputError."""
    case = own[0][1][0]
    seconds = price_messages(_machine(case), case, np.array([size for _, (_, size, _) in own]))
    return {
        number: [_scored(rows[number], one, measured, float(predicted))]
        for (number, (one, _, measured)), predicted in zip(own, seconds, strict=True)
    }


def _scored(row: PublishedRow, case: CollectiveCase, measured: float, predicted: float) -> ScoredRow:
    chosen = f"the fastest of {', '.join(case.algorithms)}" if case.operation != "send" and case.call is None else ""
    name, bins = f"{case.operation} {case.members}", {f"network {case.operation}": predicted}
    scored = kernel_row(row, name, (measured, predicted), (chosen, case.machine.note, case.note), bins)
    return replace(scored, system=row.text("system", "machine", "gpu"))


def _machine(case: CollectiveCase) -> Architecture:
    return machine_of(*case.machine.named)


def price_messages(machine: Architecture, case: CollectiveCase, sizes: Array) -> Array:
    """[n] seconds of messages of n sizes in bytes. Raises InputError where no algorithm does it there."""
    if not machine.tiers:
        raise InputError("no network joins its accelerators")
    each, first = case.members // case.nodes, machine.tiers[0]
    inside = first.below * first.children
    known = called(machine, case, sizes) if case.call is not None else None
    if known is not None:
        return known
    if case.operation == "send":
        far = inside if case.nodes > 1 else 1
        return np.asarray(send(machine, np.array([0]), np.array([far])).total(sizes))
    if case.nodes > 1 and each > inside:
        raise InputError(f"{each} members in a node of {inside}", path="--members")
    if (case.nodes - 1) * inside + each > machine.available:
        raise InputError(f"{case.members} members: the machine has {machine.available}", path="--members")
    mesh = Mesh(("node", "gpu"), (case.nodes, each), (inside, 1))
    return np.asarray(best_collective(machine, mesh, ["node", "gpu"], case.operation, sizes, case.algorithms).seconds)


def called(machine: Architecture, case: CollectiveCase, sizes: Array) -> Array | None:
    """[n] seconds by what the innermost network that joins the members' nodes knows of the library; None where it knows nothing."""
    assert case.call is not None
    calls = machine_calls(machine, case.call)
    assert calls is not None
    inside = machine.tiers[0].below * machine.tiers[0].children
    reach = case.members if case.nodes == 1 else case.nodes * inside
    tier = next((tier for tier in machine.tiers if tier.below * tier.children >= reach), None)
    if tier is None:
        return None
    members = np.full(len(sizes), case.members, dtype=np.int64)
    lines = calls.lines(tier.level, case.operation, case.bits, members, sizes)
    return lines.seconds(sizes) if lines.known.all() else None


def _case(row: PublishedRow) -> _Asked:
    """What a row asks. Raises Refused."""
    machine = words().machine(row.text("system", "machine", "gpu"), row.dataset)
    measured = measured_call(row)
    algorithms = _algorithms(row, measured.members)
    call = measured.call  # NCCL's calls were measured as its tuner chooses: one that a row names is priced for itself
    call = None if call is not None and call.library == "nccl" and algorithms != NCCL else call
    said, note = "" if call is None else call.release, ""
    if call is not None:
        call = _known_release(machine_of(*machine.named), call, measured.operation)
        note = f"{call.library} {said} is priced as {call.release}" if call.release != said else ""
    case = CollectiveCase(machine, measured.operation, measured.members, measured.nodes, algorithms, call, measured.bits, note)
    tiers = _machine(case).tiers
    if row.text("nodes") and tiers and measured.members > measured.nodes * (inside := tiers[0].below * tiers[0].children):
        raise Refused(f"{measured.members} members in {measured.nodes} nodes of {inside}")
    return case, measured.bytes, measured.seconds


def _known_release(machine: Architecture, call: LibraryCall, operation: str) -> LibraryCall:
    """The same by a release of the library that its machine's networks know of such calls: the newest no newer, else the oldest."""
    calls = machine_calls(machine, call.model_copy(update={"release": None}))
    known = [one for level in (calls.levels if calls is not None else {}).values() for one in level.get(call.library, ())]
    alike = [one for one in known if (one.kind, one.mode) == (operation, call.mode)]
    releases = list(dict.fromkeys(name for one in alike or known for name in one.releases))
    if call.release is None or call.release in releases:
        return call
    found = release_before(releases, call.release)
    return call if found is None else call.model_copy(update={"release": found})


def measured_call(row: PublishedRow) -> MeasuredCall:
    """What a row says of a call. Raises Refused."""
    word = row.text("op", "op_name", "collective") or "all_reduce"
    operation = _meant(OPERATIONS, "collective", word)
    said = row.number("n_gpus", "num_gpus", "num_workers") or 0
    members = int(min(said, 1e9))
    nodes = _nodes(row, members)
    if members != said or members < 2 or nodes % 1 or members % nodes:
        raise Refused("fewer than two members, or nodes that do not divide them")
    size = row.number("size_bytes", "message_bytes")
    if not size:
        raise Refused("no size")
    return MeasuredCall(
        call=_library(row),
        operation=operation,
        bits=_bits(row),
        members=members,
        nodes=int(nodes),
        bytes=size,
        seconds=_seconds(row, operation, members, size),
    )


def _nodes(row: PublishedRow, members: int) -> float:
    """Nodes of a row's members: as it says them, else by how many of them a node holds; one where it says neither."""
    told, each = row.whole("nodes"), row.whole("devices_per_node")
    if told is not None:
        return told
    return members / each if each and each < members else 1.0


def _library(row: PublishedRow) -> LibraryCall | None:
    """Whose collective a row names, else its data set's; None where neither says. Raises Refused for one that is not known."""
    mode: Mode = "eager" if "eager" in row.text("impl", "mode", "kernel_source").lower() else "graph"
    if row.text("nccl_version"):
        return LibraryCall(library="nccl", release=row.text("nccl_version"), mode=mode)
    word = row.text("framework", "library")
    if not word:
        return words().dataset(row.dataset).collectives
    library = _meant(LIBRARIES, "library of collectives", word)
    return LibraryCall(library=library, release=row.text("version", "release") or None, mode=mode)


def _meant(known: Mapping[str, str], what: str, word: str) -> str:
    """What a word means, in any spelling. Raises Refused with the nearest word that is known."""
    found = known.get(word) or {spelt(one): meant for one, meant in known.items()}.get(spelt(word))
    if found is None:
        close = nearest(word.lower(), list(known))
        raise Refused(f"no {what} called '{word[:40]}'" + (f" (nearest: {close})" if close else f" (known: {', '.join(known)})"))
    return found


def _bits(row: PublishedRow) -> int:
    """Of an element; where a row does not say, 16. Raises Refused."""
    word = row.text("nccl_dtype", "allreduce_dtype", "dtype")
    return width(look_up(words().precisions, "precision", word).width) if word else 16


def _algorithms(row: PublishedRow, members: int) -> tuple[str, ...]:
    """Those that a row may have run; the fastest counts. Raises Refused for one that is not known."""
    said = row.text("algo").lower()
    if "ring" in said:
        return ("ring",)
    if said in UNSAID or "auto" in said:
        return NCCL
    found = next((meant for word, meant in ALGORITHMS.items() if word in said), None)
    if found is None:
        close = nearest(said, list(ALGORITHMS))
        hint = f"(nearest: {close})" if close else f"(known: ring, {', '.join(ALGORITHMS)}, auto)"
        raise Refused(f"no algorithm called '{said[:40]}' {hint}")
    return NCCL if found == "in_network" and members <= LEAST_NVLS else (found,)


def _seconds(row: PublishedRow, operation: str, members: int, size: float) -> float:
    for column in ("time_us", "latency_us", "median_us"):
        value = row.number(column)
        if value:
            return value * 1e-6
    rate = row.number("busbw_gbs")
    if rate and operation in SHARE:
        return SHARE[operation] * (members - 1) / members * size / (rate * 1e9)
    raise Refused("no measured time")
