"""What GPUs embody: our bill beside ACT's die, EcoServe's chip and NVIDIA's product footprints, and which boundary tells them apart."""

from __future__ import annotations

from rackmodel.carbon.bill import Bill, bill_of, up_to
from rackmodel.carbon.dies import area_of, die_carbon_g
from rackmodel.carbon.tables import CarbonTables
from rackmodel.inputs import read_architecture
from rackmodel.model.embodied import BOUNDARIES, Boundary, Yield, YieldModel
from rackmodel.papers.reads import of_tables
from rackmodel.studies.findings import Finding, Need, judged

PUBLISHED: tuple[tuple[str, str, str, Boundary, float], ...] = (
    ("dgx_h100", "hgx_h100", "NVIDIA HGX H100", "tray", 8.0),
    ("dgx_b200", "hgx_b200", "NVIDIA HGX B200", "tray", 8.0),
    ("dgx_a100", "a100", "A100, life-cycle analysis", "module", 1.0),
    ("dgx_h100", "h100_ecoserve", "H100, EServe with EcoServe's HBM", "module", 1.0),
    ("dgx_h100", "h100_golden", "H100, seed 000", "memory", 1.0),
    ("dgx_h100", "h100_act_die", "H100, ACT's die", "silicon", 1.0),
)
"""Machine, product, words, the boundary its footprint is closest to, and GPUs in it."""
MODELS: tuple[YieldModel, ...] = ("poisson", "murphy", "seeds", "negative_binomial", "square_root")


def machine_bill(name: str, tables: CarbonTables) -> Bill:
    """The bill of a machine of the library."""
    return bill_of(read_architecture(name), tables)


def _published(tables: CarbonTables, machine: str, product: str, words: str, boundary: Boundary, gpus: float) -> Finding:
    """Whether a published footprint lies inside our range at the boundary that it is closest to."""
    ours, theirs = machine_bill(machine, tables).each_g(up_to(boundary)), float(tables.products[product]) / gpus
    figures = {"published, kg": theirs / 1e3, "ours, kg": ours.mid / 1e3, "ours, least": ours.low / 1e3, "ours, most": ours.high / 1e3}
    largest = ours.swings()[0][0]
    why = f"counted out to '{boundary}'; the factor that moves ours most is {largest}. {tables.products[product].source}"
    needs = [Need("published, kg", theirs / 1e3, ours.low / 1e3, ours.high / 1e3)]
    return judged(f"E-{product}", "bill", f"{words} lies in our range", needs, figures, weight="ours", why=why)


def _boundaries(tables: CarbonTables) -> Finding:
    """What each boundary adds to an H100, beside the range within one boundary."""
    bill = machine_bill("dgx_h100", tables)
    figures = {f"out to {name}, kg": bill.each_g(up_to(name)).mid / 1e3 for name in BOUNDARIES if name != "facility"}
    tray = bill.each_g(up_to("tray"))
    silicon, package, host = (bill.each_g(up_to(name)).mid for name in BOUNDARIES if name in ("silicon", "package", "host"))
    figures |= {"network over silicon": bill.each_g().mid / silicon, "most over least, out to tray": tray.high / tray.low}
    why = (
        f"14.7 (a die), 22.6, 57.4, 103 and 164 kg are the same GPU: with HBM and package it is {package / silicon:.2g} times the die, "
        f"with board and switches {tray.mid / package:.2g} times that, with its share of the host {host / tray.mid:.2g} times that"
    )
    needs = [Need("network over silicon", figures["network over silicon"], least=figures["most over least, out to tray"])]
    claim = "published footprints of an H100 differ by what they count, more than by what one boundary leaves open"
    return judged("E-boundary", "bill", claim, needs, figures, weight="ours", why=why)


def _yields(tables: CarbonTables) -> Finding:
    """The die of an H100 under each model of yield, at the process's defects, and what the defects' range makes of one model."""
    level = read_architecture("dgx_h100").accelerator
    assert level.embodied is not None
    die = level.embodied.dies["gpu"]
    area = area_of(level, "gpu", die, "h100")
    figures = {}
    for model in MODELS:
        other = die.model_copy(update={"yield_": Yield(model=model)})
        figures[f"{model}, kg"] = die_carbon_g(other, area, tables).mid / 1e3
    ours = die_carbon_g(die, area, tables)
    figures["spare SMs, kg"] = ours.mid / 1e3
    figures["none lost, kg"] = die_carbon_g(die.model_copy(update={"yield_": Yield(value=1.0)}), area, tables).mid / 1e3
    spread = max(figures.values()) / min(figures.values())
    swings = {name: high / low for name, low, high in ours.swings()}
    defects = swings.get(f"{die.process}: defects", 1.0)  # none where they are known without a range
    figures |= {"models, most over least": spread, "defects, most over least": defects}
    why = "with 12 of 144 SMs spare most defects cost nothing, so that models of a die that one defect kills overstate"
    claim = "the yield model matters more than the density of defects"
    return judged("E-yield", "bill", claim, [Need("models, most over least", spread, least=defects)], figures, weight="ours", why=why)


def _fabs(tables: CarbonTables) -> Finding:
    """The silicon of an H100 under each model of a fab."""
    figures = {f"{model}, kg": _silicon_g(tables, model) / 1e3 for model in ("act", "imec", "imec_v4")}
    why = "imec without abatement is a fifth above ACT at 97 %; imec v4.0 counts scopes 1 and 2 alone, so no materials"
    needs = [Need("most over least", max(figures.values()) / min(figures.values()), most=2)]
    return judged("E-fab", "bill", "models of a fab agree within a factor of two", needs, figures, weight="ours", why=why)


def _silicon_g(tables: CarbonTables, model: str) -> float:
    """Grams of the die of one H100 by a model of a fab."""
    level = read_architecture("dgx_h100").accelerator
    assert level.embodied is not None
    die = level.embodied.dies["gpu"]
    return die_carbon_g(die, area_of(level, "gpu", die, "h100"), tables, model).mid


def _published_checks(tables: CarbonTables) -> list[Finding]:
    """One finding a published footprint."""
    return [_published(tables, *row) for row in PUBLISHED]


CHECKS = of_tables(_published_checks, _boundaries, _yields, _fabs)
"""Published footprints, then boundaries, yield models and fabs."""
