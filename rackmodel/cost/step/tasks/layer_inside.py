"""What prices operations inside an accelerator and looks at those of a layer together: what one takes depends on the others.

Loop nests do: of operations that are fused. For a LocalPricer that knows an operation by itself `layer_inside` has one that does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rackmodel.arrays import Array, Bools
from rackmodel.cost.inside.roofline import LocalPricer
from rackmodel.cost.program.tasks import Degrees, Task
from rackmodel.cost.step.tasks.windows import Kernels
from rackmodel.model.architecture import Architecture
from rackmodel.model.profile import Host, Overlap

if TYPE_CHECKING:
    from rackmodel.cost.step.tasks.items import Item


@dataclass(frozen=True, kw_only=True)
class PricedLayer:
    """Tasks of a layer, priced. alone: launches of each [n] as a kernel of its own · architecture, degrees: they ran at · host, overlap: of
    a profile, no host's time where it counts none · piped: [n] whether stages of a pipeline run side by side."""

    items: Sequence[Item]
    alone: Sequence[Array | float]
    architecture: Architecture
    degrees: Degrees
    host: Host
    overlap: Overlap
    piped: Bools

    @property
    def device_alone(self) -> bool:
        """Whether its passes take no other seconds than those on the device."""
        apart = not (self.overlap.windows or self.overlap.weights or self.overlap.hides_gradients)
        return self.host == Host() and apart and not self.piped.any()


class LayerInside:
    """A LocalPricer that is told the tasks of a layer before it prices them, and what they came to."""

    @property
    def plan(self) -> int:
        """Number of the plan whose tasks it was told last."""
        return 0

    @property
    def second_charge(self) -> float:
        """Joules that are added for each second of an accelerator's device: the price of seconds in a sum with joules."""
        return 0.0

    def prepare(self, tasks: Iterable[Task]) -> None:
        """Know the tasks of a layer."""

    def kernels(self, architecture: Architecture, tasks: Sequence[Task], degrees: Degrees) -> Kernels:
        """Which tasks of a layer run as one kernel."""
        return {}

    def came_to(self, layer: PricedLayer) -> None:
        """Know what a layer's tasks take."""


_NONE = LayerInside()


def looks_at_layers(inside: LocalPricer) -> bool:
    """Whether what an operation takes depends on the others of its layer."""
    return isinstance(inside, LayerInside)


def layer_inside(inside: LocalPricer) -> LayerInside:
    """What a LocalPricer makes of a layer."""
    return inside if isinstance(inside, LayerInside) else _NONE
