"""A model to cut into pipeline stages, and the cut found: plain data (mapper/stages/stage_cut has the model)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rackmodel.arrays import Array, Bools
from rackmodel.errors import InfeasibleError, InputError

CAN = ("1f1b", "gpipe")
ONCE = ("first", "last", "spread", "tail", "update")
FIRST, LAST, SPREAD, TAIL, UPDATE = range(len(ONCE))


@dataclass(frozen=True)
class Once:
    """Seconds a step of what does not happen in every micro-batch, at least, whatever the policy: [K] or [K, Q], or floats of the ends.

    first, last: what the first forward and the last backward pass take longer on the device · spread: on the lane that gathers before the
    first pass what the optimizer left sharded · tail: on the lane that reduces in the last pass what was summed · update: the optimizer."""

    first: Array | float = 0.0
    last: Array | float = 0.0
    spread: Array | float = 0.0
    tail: Array | float = 0.0
    update: Array | float = 0.0

    def rows(self, kinds: int, policies: int = 1) -> Array:
        """[ONCE, K, Q]."""
        return np.stack([by_policy(getattr(self, name), (kinds, policies)) for name in ONCE])


def by_policy(figure: Array | float, shape: tuple[int, int]) -> Array:
    """[K, Q] of what is one for all policies, or not."""
    given = np.asarray(figure, dtype=float)
    return np.broadcast_to(given[:, None] if given.ndim == 1 else given, shape)


@dataclass(frozen=True)
class Ends:
    """What the first or the last stage runs besides its layers: an embedding, a head; seconds of a micro-batch, bytes once.

    state_bytes: weights, gradients, optimizer · saved_bytes: of a micro-batch; an embedding keeps them for every micro-batch in
    flight, a head for one (its backward follows at once), for all under gpipe · working_bytes: workspace · gathered_bytes: buffers."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    state_bytes: float = 0.0
    saved_bytes: float = 0.0
    working_bytes: float = 0.0
    gathered_bytes: float = 0.0
    once: Once = field(default_factory=Once)


@dataclass(frozen=True)
class CutProblem:
    """L layers of K kinds under Q policies, on one column (mesh, micro-batch), one accelerator's share of everything.

    One section is a kind, one plan a policy (`columns` fills it from the clock's passes and `cost/step/bounds/figures.Figures`):

        kinds            [L] kind of each layer, first to last: a section's number, `repeat` times
        forward_s        [K, Q] s, one layer, one steady micro-batch, on the device (inf: this kind has no such policy)
        backward_s       [K, Q] s, with recompute
        once             of a layer of each kind
        saved_bytes      [K, Q] kept for one micro-batch of one layer: held["activations"]
        working_bytes    [K, Q] once a stage, the largest used counts: held["working"] + held["remade"]
        gathered_bytes   [K, Q] of one layer, the largest used counts, and beside it as much, or what an end gathers: held["gathered"]
        state_bytes      [K] or [K, Q] of one layer: held["weights"] + held["gradients"] + held["optimizer"]
        joules           [K, Q] one layer, one micro-batch; breaks ties. None: seconds stand for them (least recompute)
        between_bytes    [stages] kept of what stages hand to each other (None: nothing)
        capacity_bytes   of one accelerator (inf: never binds)
        first, last      the sections before and after the layers
        send_s           s, one hand-over between stages, one direction: Sends.seconds
        sends_overlap    False: sender and receiver wait for it (profile.overlap.sends)
        tied_s           s, after the last pass: summing what the first and the last stage share
        schedule         1f1b or gpipe
        fewest           layers every stage holds at least
        backward         whether there are backward passes

    Where stages lie on accelerators of several kinds, what a layer costs on each is a policy of its own:

        uses             [stages, Q] whether a stage may use a policy (None: all)
        capacities       [stages] bytes (None: capacity_bytes everywhere)
        hops_s           [stages - 1] s, a hand-over from each stage to the next, mean of both ways (None: send_s everywhere)
    """

    kinds: tuple[int, ...]
    forward_s: Array
    backward_s: Array
    saved_bytes: Array
    state_bytes: Array
    stages: int
    micro_batches: int
    working_bytes: Array | None = None
    gathered_bytes: Array | None = None
    once: Once = field(default_factory=Once)
    joules: Array | None = None
    between_bytes: Array | None = None
    capacity_bytes: float = math.inf
    first: Ends = field(default_factory=Ends)
    last: Ends = field(default_factory=Ends)
    send_s: float = 0.0
    sends_overlap: bool = True
    tied_s: float = 0.0
    schedule: str = "1f1b"
    fewest: int = 1
    backward: bool = True
    uses: Bools | None = None
    capacities: Array | None = None
    hops_s: Array | None = None

    def capacity_of(self, stage: int) -> float:
        """Bytes of an accelerator of a stage."""
        return self.capacity_bytes if self.capacities is None else float(self.capacities[stage])


def check_problem(problem: CutProblem, forward: Array, others: Sequence[Array], state: Array) -> None:
    length, least = len(problem.kinds), problem.stages * problem.fewest
    if forward.ndim != 2 or any(x.shape != forward.shape for x in (*others, state)):
        raise InputError(f"figures of one [kinds, policies] shape expected, forward_s has {forward.shape}", path="cut")
    if not problem.kinds or min(problem.kinds) < 0 or max(problem.kinds) >= len(state):
        raise InputError(f"each layer's kind must be one of the {len(state)} given", path="cut.kinds")
    ends = [value for end in (problem.first, problem.last) for value in (*list(vars(end).values())[:-1], *end.once.rows(1).flat)]
    numbers = [problem.capacity_bytes, problem.send_s, problem.tied_s, problem.fewest, *problem.once.rows(*forward.shape).flat, *ends]
    runs: Bools = np.isfinite(np.add(forward, others[0]))
    if any(not (x >= 0).all() for x in (forward, *others, state)) or not all(x >= 0 for x in numbers):
        raise InputError("seconds, bytes, joules and layers must not be negative", path="cut")
    if not all(np.isfinite(x[runs]).all() for x in others) or not np.isfinite([*state.flat, *numbers[1:]]).all():
        raise InputError("only the capacity, and the seconds of a policy that a kind does not have, may be infinite", path="cut")
    uses = np.ones((problem.stages, forward.shape[1]), dtype=bool) if problem.uses is None else problem.uses
    if not all((runs[kind] & own).any() for kind in set(problem.kinds) for own in uses):
        raise InputError("a kind of layer has no policy of finite seconds", path="cut.forward_s")
    if least > length:
        raise InfeasibleError(
            f"{problem.stages} pipeline stages need {least} layers ({problem.fewest} each), the model has {length}",
            resource="layers",
            need=float(least),
            have=float(length),
            unit="layer",
        )
