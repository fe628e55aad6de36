"""What to fuse, found: against every set of pairs, and against what is declared."""

import random
import re
from itertools import combinations

import pytest

from rackmodel import api
from rackmodel.cli.written import write_mapping
from rackmodel.errors import InputError
from rackmodel.inputs import read_inputs, read_workload
from rackmodel.mapper.nests.found_fusion import Fused, cheapest_set, regions, unruled
from rackmodel.mapper.nests.fused_regions import FusedRegions
from rackmodel.model.mapping import NestRules
from rackmodel.nests import solve_nest, solve_region
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestCompute, NestFan, NestMachine
from rackmodel.nests.region import Region
from rackmodel.nests.region_loops import RegionLoops
from rackmodel.nests.searchers.effort import Effort
from rackmodel.nests.searchers.regions import fusion
from rackmodel.nests.searchers.regions.fusion import fastest_on_chip, least_on_chip, ports_on_chip
from rackmodel.nests.searchers.regions.ragged_resident import fastest_beside
from rackmodel.nests.searchers.regions.region_below import RegionBest
from rackmodel.nests.searchers.regions.region_search import RegionSearch
from rackmodel.nests.searchers.regions.region_space import RegionSpace
from rackmodel.nests.searchers.tables.shared_tables import SharedTables
from tests import samples
from tests.nests.machines import attention, einsum, level, solve_fused

SMALL = ["accelerators=1", "b=1", "s=16", "d=8", "g=1", "q=2", "e=8", "phases=[forward]", "glb.memory.capacity=1 KiB"]


def inside(fuse):
    return f"inside={{model: loopnest, factors: perfect, fuse: {fuse}}}"


def energy(fuse):
    return api.search("glb_pe", "attention", "loopnest_fused", sets=[*SMALL, inside(fuse)]).result


class DrawnCosts:
    """Costs of a draw: of operations by themselves, of regions, and of both at least. asked: in turn."""

    def __init__(self, rng, options, scale):
        self.rng, self.asked = rng, []
        names = sorted({name for one in options for name in one.taken})
        self.apart = {name: scale * rng.choice([0.0, 1.0, 1.0, 2.5]) for name in names}
        self.region = {one: self.sum(one) - scale * rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0]) for one in options}
        self.region |= {one: float("inf") for one in options if rng.random() < 0.1}

    def sum(self, one):
        return sum(self.apart[name] for name in one.taken)

    def at_least(self, figure):
        return figure - self.rng.choice([0.0, 0.0, 0.3, 2.0]) if figure < float("inf") else self.rng.choice([0.0, -1.0])

    def least_apart(self, name):
        return self.at_least(self.apart[name])

    def least_together(self, one):
        return self.at_least(self.region[one])

    def alone(self, name):
        self.asked.append(name)
        return self.apart[name]

    def together(self, one, below):
        found = self.region[one]
        self.asked.append((one, below))
        return found if found < below or (found < float("inf") and self.rng.random() < 0.3) else float("inf") if found == below else below


@pytest.mark.parametrize("seed", range(200))
def test_the_set_that_is_found_costs_least_of_all_sets(seed):
    rng = random.Random(seed)
    names, options = "abcdefg", []
    for _ in range(rng.randint(1, 7)):
        first, second, *more = rng.sample(names, rng.choice([2, 2, 3]))
        options.append(Fused((first, second), (), tuple(more)))
    costs = DrawnCosts(rng, list(dict.fromkeys(options)), rng.choice([1.0, 1e-6]))
    options = list(costs.region)
    found = cheapest_set(options, costs)
    sets = [s for k in range(len(options) + 1) for s in combinations(options, k)]
    free = [s for s in sets if sum(len(o.taken) for o in s) == len(frozenset().union(*(o.taken for o in s)))]
    saved = max(sum(costs.sum(o) - costs.region[o] for o in s) for s in free)
    assert sum(costs.sum(o) - costs.region[o] for o in found) == pytest.approx(saved, rel=1e-6, abs=1e-12)
    once = [name for name in costs.asked if isinstance(name, str)]
    assert len(once) == len(set(once))
    assert len(costs.asked) == len(set(costs.asked))


def test_regions_of_the_attention_block_are_those_of_one_reader():
    names = {(r.members, r.resident) for r in regions(read_workload("attention"))}
    assert {(("Q", "A"), ()), (("A", "Z"), ("V",)), (("Z", "Y"), ()), (("Q", "A", "Z"), ())} <= names
    assert not any("V" in members or "K" in members for members, _ in names)


def test_a_decoder_block_has_flash_attention_and_a_gated_layer_as_regions():
    found = {r.members: r for r in regions(read_workload("llama3_8b_block")) if not r.resident}
    scores, gated = found["A", "Z"].joints[0], found["G", "U", "D"].joints[0]
    assert (scores.read, scores.over, scores.vector) == ("P", "t", True)
    assert (gated.makers, gated.read, gated.whole) == (("G", "U"), "S", ())


BLOCK = ["accelerators=1", "b=1", "s=32", "d=32", "g=1", "q=2", "e=16", "f=64", "phases=[forward]"]


@pytest.mark.parametrize("aim", ["energy", "latency", "edp"])
def test_flash_attention_and_a_gated_layer_are_found(aim):
    def search(fuse):
        sets = [*BLOCK, "glb.memory.capacity=6 KiB", inside(fuse)]
        return api.search("glb_pe", "llama3_8b_block", "loopnest_fused", sets=sets, minimize=aim).result

    found, alone = search("free"), search("[]")
    assert found.certificate.proven
    figure = {"energy": lambda r: r.energy_j, "latency": lambda r: r.latency_s, "edp": lambda r: r.energy_j * r.latency_s}[aim]
    assert figure(found) < figure(alone) * (1 - 1e-3)
    kept = {name: set(nest.get("resident", ())) for name, nest in found.mapping.nests.items()}
    if aim == "energy":
        for name, tensor in (("A = QR * KR", "A"), ("Z = P * V", "P"), ("G = N2 * WG", "G"), ("D = S * WD", "S")):
            assert tensor in kept[name]


def test_what_is_found_is_no_worse_than_what_is_declared():
    found = energy("free")
    assert found.certificate.proven
    for declared in (
        "[]",
        "[{einsums: [QK, AV]}]",
        "[{einsums: [QK, AV], resident: [V]}]",
        "[{einsums: [Q, QK]}, {einsums: [AV, O]}]",
        "[{einsums: [Q, QK, AV]}]",
    ):
        assert found.energy_j <= energy(declared).energy_j * (1 + 1e-12)
    assert found.energy_j < energy("[]").energy_j * (1 - 1e-3)


def again_alone(region, aim, effort, below, parts, tables):
    """Mappings that make tiles again, whatever they cost."""
    best = RegionBest((float("inf"), float("inf")))
    RegionSearch(RegionSpace(region, RegionLoops(region, parts[0].spans, again=True)), aim, effort, best, tables=tables).run()
    return best


@pytest.mark.parametrize("fuse", ["[{einsums: [QK, AV]}]", "[{einsums: [gate, up, down]}]"])
def test_what_runs_again_is_charged_in_the_ledger_as_the_search_counts_it(fuse, monkeypatch):
    gains = []
    monkeypatch.setattr(fusion, "searched", again_alone)
    monkeypatch.setattr(FusedRegions, "saves", lambda self, one: gains.append(self.gain(one, -float("inf"))) or True)
    small = ["accelerators=1", "b=1", "s=4", "d=4", "g=1", "q=2", "e=4", "f=4", "phases=[forward]", "glb.memory.capacity=64 B"]
    fused, alone = (api.search("glb_pe", "llama3_8b_block", "loopnest_fused", sets=[*small, inside(what)]).result for what in (fuse, "[]"))
    assert any(nest.get("again") for nest in fused.mapping.nests.values())
    assert alone.energy_j - fused.energy_j == pytest.approx(gains[0], rel=1e-9)
    given = read_inputs("glb_pe", "llama3_8b_block", mapper="loopnest_fused", sets=small)
    told = api.evaluate_mapping(given.architecture, given.workload, fused.mapping, profile="serial")
    assert (told.energy_j, told.latency_s) == pytest.approx((fused.energy_j, fused.latency_s), rel=1e-12)
    nests = {name: dict(nest) for name, nest in fused.mapping.nests.items()}
    name = next(name for name, nest in nests.items() if nest.get("again"))
    nests[name]["resident"] = []
    with pytest.raises(InputError, match=r"again .* resident"):
        api.evaluate_mapping(given.architecture, given.workload, fused.mapping.model_copy(update={"nests": nests}), profile="serial")


@pytest.mark.parametrize("fuse", ["[{einsums: [QK, AV], resident: [V]}]", "free"][: samples.cases(1, 2)])
def test_any_tiles_are_fused_too_and_a_mapping_file_says_them(fuse, tmp_path):
    sets = ["accelerators=1", "b=1", "s=7", "d=6", "g=2", "q=2", "e=3", "f=5", *SMALL[-2:-1], "glb.memory.capacity=600 B", inside(fuse)]
    perfect, ragged = (
        api.search("glb_pe", "llama3_8b_block", "loopnest_fused", sets=[*sets, f"inside.factors={factors}"]).result
        for factors in ("perfect", "ceil")
    )
    assert ragged.energy_j <= perfect.energy_j * (1 + 1e-12)
    assert any("A" in nest.get("resident", ()) for nest in ragged.mapping.nests.values())
    path = write_mapping(ragged, tmp_path / "mapping.yaml")
    told = api.evaluate("glb_pe", "llama3_8b_block", str(path), sets=sets[:-1])
    assert (told.energy_j, told.latency_s) == pytest.approx((ragged.energy_j, ragged.latency_s), rel=1e-12)


@samples.audited
def test_loops_around_some_are_asked_for_and_never_worse():
    around = [energy(f"[{{einsums: [Q, QK, AV]{more}}}]") for more in ("", ", loops: some")]
    assert around[1].energy_j <= around[0].energy_j * (1 + 1e-12)
    assert around[1].certificate.proven


PAIRS = ["accelerators=1", "b=1", "s=2", "d=2", "g=1", "q=1", "e=4", "phases=[forward]", "glb.memory.capacity=24 B"]


def four(more=""):
    """All four of attention as one region, of least energy. more: of its loops."""
    asked = inside(f"[{{einsums: [Q, QK, AV, O]{more}}}]")
    return api.search("glb_pe", "attention", "loopnest_fused", sets=[*PAIRS, asked]).result


def test_loops_around_two_pairs_beside_one_another_are_asked_for_and_a_mapping_file_says_them(tmp_path):
    pairs = four(", loops: [[Q, QK], [AV, O]]")
    path = write_mapping(pairs, tmp_path / "mapping.yaml")
    told = api.evaluate("glb_pe", "attention", str(path), sets=PAIRS)
    assert (told.energy_j, told.latency_s) == pytest.approx((pairs.energy_j, pairs.latency_s), rel=1e-12)


@samples.audited
def test_loops_around_two_pairs_take_less_than_loops_around_all():
    assert four(", loops: [[Q, QK], [AV, O]]").energy_j < four().energy_j * (1 - 1e-3)


@pytest.mark.parametrize(
    ("loops", "place", "fact"),
    [
        ("[]", "loops", "around none"),
        ("[[Q, KQ]]", "loops.0", "KQ is none of the operations that run together"),
        ("[[Q, QK], [Q, AV]]", "loops.1", "expected neighbours of Q, QK, AV, O"),
        ("[[QK, Q]]", "loops.0", "two or more as they run"),
        ("[[Q]]", "loops.0", "two or more"),
        ("[[Q, QK, AV, O]]", "loops.0", "around all of the operations anyway"),
        ("[[Q, QK], [Q, QK]]", "loops.1", "said twice"),
    ],
)
def test_runs_that_are_none_are_refused_at_their_place(loops, place, fact):
    with pytest.raises(InputError, match=fact) as refused:
        energy(f"[{{einsums: [Q, QK, AV, O], loops: {loops}}}]")
    assert refused.value.path == f"inside.fuse.0.{place}"


def test_a_backward_pass_keeps_its_tensors():
    with pytest.raises(InputError, match="forward pass"):
        api.search("glb_pe", "attention", "loopnest_fused", sets=[*SMALL[:-2], inside("free")])


@pytest.mark.parametrize("seed", range(4))
def test_no_fused_einsum_takes_less_than_with_its_tensor_on_chip_for_nothing(seed):
    rng = random.Random(seed)
    sizes = {"m": rng.choice([4, 6]), "f": rng.choice([4, 8]), "e": rng.choice([2, 3]), "d": rng.choice([2, 4])}
    first = einsum("Up", ("H", "m f"), [("I", "m d"), ("W", "d f")], sizes)
    second = einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], sizes)
    room = 16 * rng.choice([24, 40, 80])
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", room, 1, 1e9, NestFan(2))), NestCompute(1e9, 0.5e-12))
    found = solve_fused(first, second, machine)
    for problem, cost in zip((first, second), found.costs, strict=True):
        assert least_on_chip(problem, machine, frozenset({"H"})) <= cost.energy_j * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_no_fused_einsum_is_faster_than_with_its_tensor_on_chip_for_nothing(seed):
    """With nothing on chip it is as fast as its nest; with a tensor there, and room for all, as the nest that finds it there."""
    rng = random.Random(seed)
    sizes = {"m": rng.choice([4, 6]), "f": rng.choice([4, 8]), "e": rng.choice([2, 3]), "d": rng.choice([2, 4])}
    first = einsum("Up", ("H", "m f"), [("I", "m d"), ("W", "d f")], sizes)
    second = einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], sizes)
    fast, room = NestCompute(rng.choice([1e8, 1e10]), 0.5e-12), 16 * rng.choice([24, 40, 80])
    tight, roomy = (
        NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", bits, 1, rng.choice([2e9, 8e9]), NestFan(2, 2))), fast)
        for bits in (room, None)
    )
    found = solve_region(Region.of((first, second), tight), objective=NestObjective("latency"))
    for problem, cost in zip((first, second), found.costs, strict=True):
        assert fastest_on_chip(problem, tight, frozenset({"H"}), Effort()) <= cost.latency_s * (1 + 1e-12)
        alone = solve_nest(problem, tight, objective="latency", factors="perfect")
        assert fastest_on_chip(problem, tight, frozenset(), Effort()) == pytest.approx(alone.cost.latency_s, rel=1e-12)
        there = solve_nest(problem, roomy, objective="latency", factors="perfect", resident=("H",))
        assert fastest_on_chip(problem, roomy, frozenset({"H"}), Effort()) == pytest.approx(there.cost.latency_s, rel=1e-12)
        assert fastest_on_chip(problem, roomy, frozenset({"H"}), Effort(100)) <= there.cost.latency_s * (1 + 1e-12)
        assert ports_on_chip(problem, roomy, frozenset({"H"}), Effort(), SharedTables()) <= there.cost.latency_s * (1 + 1e-12)


def test_no_fused_einsum_of_any_tile_is_faster_than_below_and_every_other_word_once():
    """Of 2 x 3 words of I and 3 x 5 of W, then 5 x 7 of WD and 2 x 7 of O, each is 2 bytes at 1 byte a ns; units
    take 8 and 18 ns."""
    first = einsum("Up", ("H", "m f"), [("I", "m d"), ("W", "d f")], {"m": 2, "f": 5, "d": 3})
    second = einsum("Down", ("O", "m e"), [("H", "m f"), ("WD", "f e")], {"m": 2, "f": 5, "e": 7})
    machine = NestMachine("m", (level("DRAM", None, 10, 8e9), level("GLB", 16 * 40, 1, 1e12, NestFan(2, 2))), NestCompute(1e9, 0.5e-12))
    least = [fastest_beside(p, machine, frozenset({"H"}), SharedTables()) for p in (first, second)]
    assert least == pytest.approx([(6 + 15) * 2e-9, (35 + 14) * 2e-9], rel=1e-12)
    found = solve_region(Region.of((first, second), machine), objective=NestObjective("latency"), factors="ceil")
    assert all(cost.latency_s >= bound * (1 - 1e-12) for bound, cost in zip(least, found.costs, strict=True))


def test_what_stays_takes_its_room():
    qk, av = attention(s=16, d=24, h=1, g=2, e=8)[3:5]
    machine = NestMachine("m", (level("DRAM", None, 10, 1e9), level("GLB", 16 * 600, 1, 1e9)), NestCompute(1e9, 0.5e-12))
    alone, kept = (solve_fused(qk, av, machine, resident=names) for names in ((), ("V",)))
    assert kept.energy_j < alone.energy_j


@pytest.mark.parametrize("rules", ["AV: {bypass: {glb: [V]}}", "V: {stationary: {glb: WV}}", "'*': {keep: {glb: [right]}}"])
def test_regions_are_searched_without_rules_and_those_of_what_is_fused_are_refused(rules):
    declared = "[{einsums: [QK, AV], resident: [V]}]"
    with pytest.raises(
        InputError, match=rf"inside\.rules\.{re.escape(rules.partition(':')[0].strip(chr(39)))}: .* fused, .* without rules"
    ):
        energy(f"{declared}, rules: {{{rules}}}")
    with pytest.raises(InputError, match=r"inside\.solver: .* not searched by CP-SAT"):
        energy(f"{declared}, solver: cpsat")


def test_what_is_under_rules_is_not_among_what_is_found():
    workload = read_workload("attention", ["phases=[forward]"])
    ruled = {"AV": NestRules(bypass={"glb": ["V"]}), "*": NestRules(), "O": NestRules()}
    left = unruled(workload, regions(workload), ruled, found=True)
    assert left
    assert all("Z" not in one.taken for one in left)
    assert left == [one for one in regions(workload) if "Z" not in one.taken]
    with pytest.raises(InputError, match=r"inside\.rules: every operation that might be fused"):
        unruled(workload, regions(workload), {"*": ruled["AV"]}, found=True)
