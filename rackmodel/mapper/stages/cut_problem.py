"""A model to cut into pipeline stages, and the cut found: plain data (mapper/stages/stage_cut has the model)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackmodel.errors import InfeasibleError, InputError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
CAN = ("1f1b", "gpipe")


@dataclass(frozen=True)
class Ends:
    """What the first or the last stage runs besides its layers: an embedding, a head; seconds of a micro-batch, bytes once.

    state_bytes: weights, gradients, optimizer · saved_bytes: of a micro-batch; an embedding keeps them for every micro-batch in
    flight, a head for one (its backward follows at once), for all under gpipe · working_bytes: workspace."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    state_bytes: float = 0.0
    saved_bytes: float = 0.0
    working_bytes: float = 0.0


@dataclass(frozen=True)
class CutProblem:
    """L layers of K kinds under Q policies, on one column (mesh, micro-batch), one accelerator's share of everything.

    How `cost/step/figures.Figures` of one plan and column fill it, one section a kind, one plan a policy:

        kinds            [L] kind of each layer, first to last: a section's number, `repeat` times
        forward_s        [K, Q] s, one layer, one micro-batch: Passes.forward (inf: this kind has no such policy)
        backward_s       [K, Q] s, with recompute and what is gathered for it: Passes.backward
        saved_bytes      [K, Q] kept for one micro-batch of one layer: held["activations"]
        working_bytes    [K, Q] once a stage, the largest used counts: held["working"] + held["remade"] + 2 held["gathered"]
        state_bytes      [K] of one layer: held["weights"] + held["gradients"] + held["optimizer"]
        joules           [K, Q] one layer, one micro-batch; breaks ties. None: seconds stand for them (least recompute)
        capacity_bytes   of one accelerator (inf: never binds)
        first, last      the sections before and after the layers
        send_s           s, one hand-over between stages, one direction: Sends.seconds
        sends_overlap    False: sender and receiver wait for it (profile.overlap.sends)
        schedule         1f1b or gpipe
        fewest           layers every stage holds at least
    """

    kinds: tuple[int, ...]
    forward_s: Array
    backward_s: Array
    saved_bytes: Array
    state_bytes: Array
    stages: int
    micro_batches: int
    working_bytes: Array | None = None
    joules: Array | None = None
    capacity_bytes: float = math.inf
    first: Ends = field(default_factory=Ends)
    last: Ends = field(default_factory=Ends)
    send_s: float = 0.0
    sends_overlap: bool = True
    schedule: str = "1f1b"
    fewest: int = 1


@dataclass(frozen=True)
class CutAnswer:
    """layers: [stages] of each stage · mixes: [stages, K, Q] of them, by kind and policy · seconds: simulated
    pipeline of a step · bound: no cut is faster · proven: this one is the fastest (to 1e-9) · joules: of the layers, a step (recomputed as
    seconds where none were given) · held_bytes: [stages] · simulated: cuts tried."""

    layers: tuple[int, ...]
    mixes: Ints
    seconds: float
    bound: float
    proven: bool
    joules: float
    held_bytes: Array
    simulated: int


def check_problem(problem: CutProblem, forward: Array, others: Sequence[Array], state: Array) -> None:
    length, least = len(problem.kinds), problem.stages * problem.fewest
    if forward.ndim != 2 or any(x.shape != forward.shape for x in others) or state.shape != forward.shape[:1]:
        raise InputError(f"figures of one [kinds, policies] shape expected, forward_s has {forward.shape}", path="cut")
    if not problem.kinds or min(problem.kinds) < 0 or max(problem.kinds) >= len(state):
        raise InputError(f"each layer's kind must be one of the {len(state)} given", path="cut.kinds")
    numbers = [problem.capacity_bytes, problem.send_s, problem.fewest, *vars(problem.first).values(), *vars(problem.last).values()]
    runs: NDArray[np.bool_] = np.isfinite(np.add(forward, others[0]))
    if any(not (x >= 0).all() for x in (forward, *others, state)) or not all(x >= 0 for x in numbers):
        raise InputError("seconds, bytes, joules and layers must not be negative", path="cut")
    if not all(np.isfinite(x[runs]).all() for x in others) or not np.isfinite([*state, *numbers[1:]]).all():
        raise InputError("only the capacity, and the seconds of a policy that a kind does not have, may be infinite", path="cut")
    if not all(runs[kind].any() for kind in set(problem.kinds)):
        raise InputError("a kind of layer has no policy of finite seconds", path="cut.forward_s")
    if least > length:
        raise InfeasibleError(
            f"{problem.stages} pipeline stages need {least} layers ({problem.fewest} each), the model has {length}",
            resource="layers",
            need=float(least),
            have=float(length),
            unit="layer",
        )
