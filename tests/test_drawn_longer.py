"""What kernels draw longer because collectives beside them slow them: by hand, by the clock's seconds, and in every sum of joules."""

from __future__ import annotations

import random

import numpy as np
import pytest

import rackmodel as rm
from rackmodel import api
from rackmodel.cost.inside.roofline import Row
from rackmodel.cost.program.tasks import Task
from rackmodel.cost.step.ledger import step_ledger
from rackmodel.cost.step.tasks.drawn_longer import Slowed, drawn_longer
from rackmodel.cost.step.tasks.items import Item, Priced
from rackmodel.cost.step.tasks.jobs import DEVICE, WEIGHTS, LaneJob, LayerPass
from rackmodel.inputs import read_inputs
from rackmodel.model.result import Result
from tests.audit.bounds import search_of

TWO_SECONDS, NONE = np.array([2.0]), np.zeros(1)
FACTS = "tensor_core.compute.kernels"
# every kernel draws 250 W, a GPU that waits 58
ALIKE = (f"{FACTS}.busy={{}}", f"{FACTS}.busy_power=250 W", f"{FACTS}.power_limit=10 kW", "profile.variation=0")
STEP = ("accelerators=4", "b=8", "layers=4", "s=2048")


def drawing(busy: float, waiting: float, **beside: np.ndarray) -> Item:
    """A kernel of 2 s that draws so many joules at work; a GPU that waits as long would draw `waiting`."""
    rows = [
        Row("Y", "gpu", "memory", "read", np.ones(1), "byte", np.array([10.0]), TWO_SECONDS, TWO_SECONDS),
        Row("", "gpu", "static", "busy", np.array([busy]), "joule", np.array([busy]), NONE, NONE),
        Row("", "gpu", "static", "waiting", np.array([-waiting]), "joule", np.array([-waiting]), NONE, NONE),
    ]
    task = Task("op", "forward", "E", "Y", 0, "run", ())
    return Item(task=task, role="device", part="forward", priced=Priced(rows, TWO_SECONDS), **beside)


def one_pass(name: str, stretch: float) -> LayerPass:
    """A pass that runs task 0 on the device and task 1 on another lane."""
    jobs = LaneJob(lane=DEVICE, seconds=TWO_SECONDS * stretch, members=(0,)), LaneJob(lane=WEIGHTS, seconds=TWO_SECONDS, members=(1,))
    return LayerPass(name=name, body=jobs, stretch=np.array([stretch]))


def joules(slowed: Slowed, passes: dict[str, LayerPass], items: list[Item]) -> np.ndarray:
    """Of one layer in a step."""
    return drawn_longer(slowed.longer(passes, items), items)


def test_a_kernel_beside_collectives_draws_as_much_longer_as_they_slow_it() -> None:
    """Of four micro-batches the first takes 1.2 and three 1.1 times as long; a second of collectives that windows hide beside 2 s of the
    kernel, at a contention of a half, makes it 1.25 times as long first. 500 J at work, 80 J of a GPU that waits for as long."""
    passes = {"first": one_pass("first", 1.2), "forward": one_pass("forward", 1.1)}
    slowed = Slowed(np.array([4]), 0.5)
    plain, windowed = drawing(500.0, 80.0), drawing(500.0, 80.0, beside=np.ones(1))
    assert slowed.longer(passes, [plain, plain])[0] == pytest.approx([0.2 + 3 * 0.1])
    assert joules(slowed, passes, [plain, plain]) == pytest.approx([0.5 * 420.0])
    assert joules(slowed, passes, [windowed, plain]) == pytest.approx([(1.25 * 1.2 - 1 + 3 * (1.25 * 1.1 - 1)) * 420.0])
    assert joules(Slowed(np.array([4]), 0.0), passes, [windowed, plain]) == pytest.approx([0.5 * 420.0])  # (windows are not used)


def test_a_kernel_at_the_limit_draws_no_less_for_being_slowed() -> None:
    """One whose operations alone are at the power limit leaves its clocks 50 J where a GPU that waits draws 80: no joules are taken off."""
    passes = {"first": one_pass("first", 1.2)}
    assert joules(Slowed(np.array([1]), 0.0), passes, [drawing(50.0, 80.0)]) == pytest.approx([0.0])


def spent(mapper: str, profile: str, *sets: str) -> tuple[Result, float, float]:
    """(the best step of Llama 3 8B on four H100, seconds in which each works, in which each waits, by what they draw)."""
    found = api.search("dgx_h100", "llama3_8b", mapper, sets=(*STEP, *ALIKE, *sets), profile=profile).result
    busy, waiting = (found.ledger.where(action=action).total("joules") for action in ("busy", "waiting"))
    return found, busy / 4 / 250.0, waiting / 4 / 58.0


def exposed(found: Result, *components: str) -> float:
    """Seconds of the critical path."""
    return sum(float(row.exposed_seconds) for row in found.ledger.rows if row.component in components and row.action != "host")


def test_kernels_slowed_by_gathers_draw_their_power_for_as_long_as_they_take() -> None:
    """Of FSDP, whose kernels are all on the critical path: 250 W for every second of them, 58 W for every other."""
    found, works, waits = spent("fsdp", "fsdp")
    free, works_free, waits_free = spent("fsdp", "fsdp", "profile.overlap.contention=0")
    assert found.latency_s > free.latency_s
    assert works == pytest.approx(exposed(found, "compute", "memory"))
    assert works - works_free == pytest.approx(found.latency_s - free.latency_s)
    assert waits == pytest.approx(waits_free)
    assert found.energy_j == pytest.approx(found.ledger.total("joules"), rel=1e-12)


@pytest.mark.parametrize("tensor", [2, 4])
def test_a_gpu_works_or_waits_whatever_windows_hide(tensor: int) -> None:
    """What a product is slower beside what its window hides is on the critical path as the collective's: it works meanwhile."""
    found, works, waits = spent("megatron", "megatron_core", "axes.pp.degree=1", f"axes.tp.degree={tensor}")
    assert found.latency_s == pytest.approx(works + waits)
    assert works > exposed(found, "compute", "memory") * 1.01
    assert waits < exposed(found, "network") * 0.9


SPACES = [
    ("megatron", (), "megatron_core"),
    ("megatron", ("axes.pp.degree=2", "schedule=zb_v"), "megatron_core"),
    ("megatron_offload", (), "megatron_core"),
    ("fsdp", (), "torchtitan"),
]


@pytest.mark.parametrize(("mapper", "sets", "profile"), SPACES)
def test_what_a_search_adds_up_is_what_the_ledger_says(mapper: str, sets: tuple[str, ...], profile: str) -> None:
    """Points of a space: no less than their bounds, and the ledger's to the last digits; so are mappings that are priced."""
    inputs = read_inputs("dgx_h100", "llama3_8b", mapper=mapper, sets=[*STEP, *sets])
    assert inputs.mapper is not None
    search = search_of((inputs.architecture, inputs.workload, inputs.mapper), profile)
    listed = [(block, flat) for block in search.blocks.walk() for flat in range(block.seconds.size)]
    bounds = [search.blocks.point(block, flat, 0.0) for block, flat in random.Random(1).sample(listed, min(8, len(listed)))]
    longer = 0.0
    for bound, point in zip(bounds, search.clocked.exact(bounds), strict=True):
        step = search.clocked.step(point)
        assert bound.joules <= point.joules * (1 + 1e-12)
        assert point.joules == pytest.approx(step_ledger(step).total("joules"), rel=1e-12)
        longer = max(longer, float(step.drawn_longer_j[0]))
    assert longer > 0


@pytest.mark.parametrize("sets", [("axes.pp.degree=4",), ("axes.pp.degree=2", "recompute=per layer")])
def test_a_mapping_that_is_priced_has_the_joules_of_its_search(sets: tuple[str, ...]) -> None:
    found = api.search("dgx_h100", "llama3_8b", "megatron_cut", sets=(*STEP, *sets), profile="megatron_core").result
    told = {"accelerators": 4, "b": 8, "layers": 4, "s": 2048}
    priced = rm.price("dgx_h100", "llama3_8b", found.mapping, set=told, profile="megatron_core")
    assert priced.energy_j[0] == pytest.approx(found.energy_j, rel=1e-12)
    assert found.energy_j == pytest.approx(found.ledger.total("joules"), rel=1e-12)


def test_stages_of_operations_draw_longer_too() -> None:
    """Six operations of attention on four GPUs each: the point, its search's energy and the ledger."""
    inputs = read_inputs("dgx_h100", "attention", mapper="pipeline_tensor", sets=["accelerators=24"])
    assert inputs.mapper is not None
    search = search_of((inputs.architecture, inputs.workload, inputs.mapper), "megatron_core")
    (block,) = search.blocks.walk()
    (point,) = search.clocked.exact([search.blocks.point(block, 0, 0.0)])
    step = search.clocked.step(point)
    assert step.staged
    assert step.drawn_longer_j[0] > 0
    assert point.joules == pytest.approx(step_ledger(step).total("joules"), rel=1e-12)
