"""What one accelerator of a stage holds while it runs a plan: weights and their state, what is saved, and the workspace beside."""

from __future__ import annotations

from rackmodel.cost.program.local_ops import backward_legs, forward_leg
from rackmodel.cost.program.tasks import Held, Volume, local
from rackmodel.cost.program.wanted import Place, Places
from rackmodel.model.copies import saved_copy
from rackmodel.model.plan import Plan
from rackmodel.model.workload import Workload


def held(workload: Workload, plan: Plan, places: Places) -> list[Held]:
    """Everything that is held, by what holds it."""
    return _Holding(workload, plan, places).all()


class _Holding:
    def __init__(self, workload: Workload, plan: Plan, places: Places) -> None:
        self.workload, self.plan, self.places = workload, plan, places
        self.held: list[Held] = []

    def all(self) -> list[Held]:
        """In program order."""
        again = (*self.places.recompute.rerun, *self.places.recompute.inside)
        for place, traffic in self.places.traffic.items():
            tensor = self.workload.tensors[place[0]]
            if tensor.kind == "weight":
                self._hold_weight(place)
            elif traffic.saved is not None:
                self.held.append(Held("activations", tensor.name, place[1], local(tensor.bytes, traffic.saved)))
        for op in self.workload.ops.values():
            stage = self.plan.stages[op.name]
            if op.kind.mask_bytes and self.workload.backward and op.name not in again:
                elements = self.workload.tensors[op.out.tensor].elements
                self.held.append(
                    Held("activations", f"{op.out.tensor}.mask", stage, local(elements * op.kind.mask_bytes, self.plan.leaves(op)))
                )
            if op.kind.mask_bytes and op.name in self.places.recompute.rerun and self.plan.temporal:
                elements = self.workload.tensors[op.out.tensor].elements
                self.held.append(Held("remade", f"{op.out.tensor}.mask", stage, local(elements * op.kind.mask_bytes, self.plan.leaves(op))))
            if not self.workload.backward:
                leg = forward_leg(op, self.plan, self.workload)
                for name, volume in (*leg.reads, *leg.writes):
                    if self.workload.tensors[name].kind != "weight":
                        self.held.append(Held("working", op.name, stage, volume))
        if self.plan.temporal and self.workload.backward:
            self._hold_workspace()
        return self.held

    def _hold_workspace(self) -> None:
        """What a training step needs beside what it saves: gradients under way, what is made again, gathered parameters."""
        for op in self.workload.ops.values():
            stage = self.plan.stages[op.name]
            for leg in backward_legs(op, self.plan, self.workload):
                for name, volume in (*leg.reads, *leg.writes):
                    if name.startswith("d") and name[1:] in self.workload.tensors and self.workload.tensors[name[1:]].kind != "weight":
                        self.held.append(Held("working", f"{op.name}.{leg.writes[0][0]}", stage, volume))
        for place, layouts in self.places.read_back.items():
            tensor = self.workload.tensors[place[0]]
            if place[0] in self.places.recompute.made and place[0] not in self.plan.on_chip:
                kept = saved_copy("shard", self.places.produced(place), self.places.wanted[place], layouts)
                self.held.append(Held("remade", tensor.name, place[1], local(tensor.bytes, kept)))
            elif tensor.kind == "weight" and self.plan.home(place[0]).param == "shard":
                self.held.append(Held("gathered", tensor.name, place[1], local(tensor.bytes, self.places.compute_layout(place))))

    def _hold_weight(self, place: Place) -> None:
        tensor, home = self.workload.tensors[place[0]], self.plan.home(place[0])
        layout, level = self.places.compute_layout(place), home.at or ""
        sizes: list[tuple[str, float, str]] = [("weights", tensor.bytes, home.param)]
        if self.workload.backward:
            sizes.append(("gradients", tensor.elements * self.workload.gradient_bits / 8, home.grad))
        if "optimizer" in self.workload.phases:
            sizes.append(("optimizer", tensor.elements * self.workload.state_bits / 8, home.state))
        for what, total, said in sizes:
            volume = Volume(total) if level else local(total, self.places.sharded(layout, home.axes if said == "shard" else []))
            self.held.append(Held(what, tensor.name, place[1], volume, level))  # type: ignore[arg-type]
