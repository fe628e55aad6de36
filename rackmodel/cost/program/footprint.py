"""What one accelerator of a stage holds while it runs a plan: weights and their state, what is saved, and the workspace beside.

weights, gradients, optimizer   where their home keeps them: here, or at a level above
frozen                          those of the weights that are not trained
kv_cache                        what is kept of sequences from step to step, in whole pages
activations                     what the backward pass reads, each once, in the copy that is saved; dropout's masks
remade                          what is recomputed for a layer's backward pass, in the copy that would be saved
gathered                        of one layer: parameters that rest sharded, gathered for use, and gradients of one micro-batch
                                before they are reduced to where they rest (two layers of each are there at once: docs/clock.md)
working                         operands and results of one pass of an operation: gradients under way; without a backward pass
                                all activations (the largest pass counts); nothing where the network adds on the way
"""

from __future__ import annotations

from collections.abc import Sequence

from rackmodel.cost.program.local_ops import backward_ops, forward_op, has_backward, held_between
from rackmodel.cost.program.recompute import Recompute
from rackmodel.cost.program.tasks import Held, LocalOp, Volume, local
from rackmodel.cost.program.wanted import Place, Places
from rackmodel.cost.program.widths import kept_bytes, sent_bytes
from rackmodel.model.copies import saved_copy
from rackmodel.model.layout import REPLICATE, Layout
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Op, Tensor, Workload


def resident_tensors(workload: Workload, plan: Plan, places: Places) -> list[Held]:
    """Everything that is held, by what holds it."""
    return _Footprint(workload, plan, places).all()


def held_alone(op: Op, workload: Workload, plan: Plan, recompute: Recompute) -> list[Held]:
    """What an operation holds whatever brings its operands to it: a mask, what its kernels hand to each other, its result where a policy
    keeps that though nobody reads it, and the workspace of those passes that need most room, the backward ones where there are any."""
    stage, out = plan.stages[op.name], workload.tensors[op.out.tensor]
    found: list[Held] = []
    if op.kind.mask_bytes and workload.backward and has_backward(op, workload) and op.name not in recompute.inside:
        volume = local(out.elements * op.kind.mask_bytes, plan.leaves(op), out, plan)
        found.append(Held("remade" if op.name in recompute.rerun else "activations", f"{out.name}.mask", stage, volume))
    passes = backward_ops(op, plan, workload) if workload.backward else (forward_op(op, plan, workload),)
    if passes:
        between = held_between(op, plan, workload, backward=workload.backward)
        found += [Held("working", f"{op.name}.{passes[0].written}", stage, volume) for volume in between]
    if out.name in recompute.idle:
        found.append(Held("activations", out.name, stage, local(kept_bytes(out, plan), plan.leaves(op), out, plan)))
    for local_op in passes:
        found += _working(op.name, local_op, workload, plan, stage)
    return found


def _working(op: str, local_op: LocalOp, workload: Workload, plan: Plan, stage: int) -> list[Held]:
    """Workspace of one pass of an operation; plans that share the pass share it."""
    key = ("working", op, id(local_op), stage)
    if key not in plan.known:
        name = f"{op}.{local_op.written}"
        plan.known[key] = local_op, [Held("working", name, stage, volume) for volume in working_volumes(local_op, workload)]
    return plan.known[key][1]  # type: ignore[no-any-return]


def working_volumes(local_op: LocalOp, workload: Workload) -> list[Volume]:
    """What a pass holds beside what is counted elsewhere: gradients of activations, or (forward alone) activations."""
    return [
        flow.volume
        for flow in (*local_op.reads, *local_op.writes)
        if not flow.state
        and flow.tensor in workload.tensors
        and workload.tensors[flow.tensor].kind not in ("weight", "kv_cache")
        and flow.gradient == workload.backward
    ]


class _Footprint:
    def __init__(self, workload: Workload, plan: Plan, places: Places) -> None:
        self.workload, self.plan, self.places = workload, plan.room, places
        self.held: list[Held] = []

    def all(self) -> list[Held]:
        """In program order."""
        for place, traffic in self.places.traffic.items():
            tensor = self.workload.tensors[place[0]]
            if tensor.kind == "weight":
                self._hold_weight(place)
            elif tensor.kind == "kv_cache":
                self._hold_cache(place)
            elif traffic.saved is not None:
                kept = kept_bytes(tensor, self.plan)
                self.held.append(Held("activations", tensor.name, place[1], local(kept, traffic.saved, tensor, self.plan)))
        for op in self.workload.ops.values() if not self.places.weight else ():
            self.held += held_alone(op, self.workload, self.plan, self.places.recompute)
        if self.workload.backward:
            self._hold_workspace()
        return self.held

    def _hold_workspace(self) -> None:
        for place, layouts in self.places.read_back.items():
            tensor = self.workload.tensors[place[0]]
            if self.places.made_again(place) and place[0] not in self.plan.on_chip:
                policy = self.plan.save_policy(place[0])
                kept = saved_copy(policy, self.places.produced(place), self.places.wanted[place], layouts)
                self.held.append(Held("remade", tensor.name, place[1], local(tensor.bytes, kept, tensor, self.plan)))

    def _hold_cache(self, place: Place) -> None:
        """A cache as its reader needs it; those of all micro-batches stay."""
        tensor = self.workload.tensors[place[0]]
        layout = (*self.places.compute_layout(place)[: self.plan.spatial], REPLICATE)
        self.held.append(Held("kv_cache", tensor.name, place[1], local(tensor.held_bytes, layout, tensor, self.plan)))

    def _hold_weight(self, place: Place) -> None:
        tensor, home = self.workload.tensors[place[0]], self.plan.home(place[0])
        if not tensor.held:
            return
        layout, level = self.places.compute_layout(place), home.at or ""
        gradient = tensor.elements * self.workload.gradient_bits / 8
        sizes: list[tuple[str, float, str]] = [("weights", tensor.bytes, home.param)]
        if not tensor.trained and not level:
            sizes.append(("frozen", tensor.bytes, home.param))
        if self.workload.backward and tensor.trained:
            sizes.append(("gradients", gradient, home.grad))
        if "optimizer" in self.workload.phases and tensor.trained:
            sizes.append(("optimizer", tensor.elements * self.workload.state_bits / 8, home.state))
        for what, total, said in sizes:
            volume = Volume(total) if level else self._kept(total, layout, home.axes if said == "shard" else [], tensor)
            self.held.append(Held(what, tensor.name, place[1], volume, level))  # type: ignore[arg-type]
        over = tuple(self.plan.axes.index(axis) for axis in home.axes)
        if home.param == "shard":
            sent = sent_bytes(tensor, self.plan)
            self.held.append(Held("gathered", tensor.name, place[1], local(sent, layout, tensor, self.plan), over=over))
        if self.workload.backward and tensor.trained and home.grad == "shard":
            apart = (*over, self.plan.spatial)  # what a micro-batch makes is another one's sum as well
            self.held.append(Held("gathered", f"{tensor.name}.gradient", place[1], local(gradient, layout, tensor, self.plan), over=apart))

    def _kept(self, total: float, layout: Layout, axes: Sequence[str], weight: Tensor) -> Volume:
        """So many bytes of a weight on one accelerator, further sharded over the axes of its home."""
        return local(total, self.places.sharded(layout, axes), weight, self.plan)
