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
        for op in self.workload.ops.values():
            self._hold_mask(op)
            stage, passes = self.plan.stages[op.name], self._passes(op)
            self._hold_between(op, passes)
            for local_op in passes:
                self.held += self._working(op.name, local_op, stage)
        if self.workload.backward:
            self._hold_workspace()
        return self.held

    def _working(self, op: str, local_op: LocalOp, stage: int) -> list[Held]:
        """Workspace of one pass of an operation; plans that share the pass share it."""
        key = ("working", op, id(local_op), stage)
        if key not in self.plan.known:
            name = f"{op}.{local_op.written}"
            self.plan.known[key] = local_op, [Held("working", name, stage, volume) for volume in working_volumes(local_op, self.workload)]
        return self.plan.known[key][1]  # type: ignore[no-any-return]

    def _passes(self, op: Op) -> tuple[LocalOp, ...]:
        """Those that need most room: the backward ones, where there are any."""
        if self.workload.backward:
            return self.places.backward(op) if self.plan is self.places.plan else backward_ops(op, self.plan, self.workload)
        return (forward_op(op, self.plan, self.workload),)

    def _hold_between(self, op: Op, passes: Sequence[LocalOp]) -> None:
        """What the kernels of an operation hand to each other, and what a policy keeps though nobody reads it."""
        stage, backward = self.plan.stages[op.name], self.workload.backward
        between = held_between(op, self.plan, self.workload, backward=backward)
        for local_op in passes[:1]:
            self.held += [Held("working", f"{op.name}.{local_op.written}", stage, volume) for volume in between]
        tensor = self.workload.tensors[op.out.tensor]
        if tensor.name in self.places.recompute.idle:
            kept = kept_bytes(tensor, self.plan)
            self.held.append(Held("activations", tensor.name, stage, local(kept, self.plan.leaves(op), tensor, self.plan)))

    def _hold_mask(self, op: Op) -> None:
        if not (op.kind.mask_bytes and self.workload.backward and has_backward(op, self.workload)):
            return
        recompute = self.places.recompute
        out = self.workload.tensors[op.out.tensor]
        volume = local(out.elements * op.kind.mask_bytes, self.plan.leaves(op), out, self.plan)
        if op.name in recompute.rerun:
            self.held.append(Held("remade", f"{op.out.tensor}.mask", self.plan.stages[op.name], volume))
        elif op.name not in recompute.inside:
            self.held.append(Held("activations", f"{op.out.tensor}.mask", self.plan.stages[op.name], volume))

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
