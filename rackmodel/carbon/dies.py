"""Dies: how large they are, which share of them works, and the grams of one that does.

    grams = area (or its share of the wafer) · (CI_fab · EPA + GPA + MPA) · share of steps / yield          (ACT, eqs. 4 and 5)

A die without an area is as large as the silicon that its level and those below state. Other models of a fab stand for the
bracket. Yields: carbon/yields.
"""

from __future__ import annotations

from rackmodel.carbon import yields
from rackmodel.carbon.ranges import Ranged, apply, factor, fixed, total
from rackmodel.carbon.silicon import act_area_carbon, die_carbon
from rackmodel.carbon.tables import CarbonTables, sourced
from rackmodel.errors import InputError
from rackmodel.model.architecture import Level
from rackmodel.model.embodied import Die, Yield

CM2 = 1e4  # cm2 in a m2
LEAST_GOOD = 0.01  # dies that work, of those made: below, the model of yield is in doubt and not the die
HOTTEST_W_PER_M2 = 5e6  # 500 W/cm2: four times what liquid cooling takes away from a chip today
COLDEST_W_PER_M2 = 1e3  # 0.1 W/cm2: large dies leak more than that


def area_of(level: Level, name: str, die: Die, machine: str) -> Ranged:
    """Square metres of one die of a level: as stated, else all silicon of this level and below over the dies. Raises InputError.

    machine: what its own factors are called after, so that those of two machines are two.
    """
    if die.area is not None:
        return factor(f"{machine}.{level.name}.{name} area", die.area)
    area = _silicon(level, machine, top=True) / die.count
    if not area.mid > 0:
        raise InputError("no area, and no silicon is stated on this level and below", path="area")
    if area.mid > yields.wafer_area_m2():
        raise InputError(f"{area.mid * 1e6:,.0f} mm2 is more than a wafer", path="area")
    return area


def _silicon(level: Level, machine: str, *, top: bool) -> Ranged:
    """Silicon of one instance with all below it that no nearer die takes."""
    made = level.embodied
    if made is not None and not top and any(die.area is None for die in made.dies.values()):
        return fixed(0.0)
    parts = []
    if made is not None:
        if made.area is not None:
            parts.append(factor(f"{machine}.{level.name} area", made.area))
        if made.area_per_mac is not None:
            parts.append(factor(f"{machine}.{level.name} area_per_mac", made.area_per_mac) * float(made.macs))
        if made.area_per_byte is not None:
            if level.memory is None or level.memory.capacity_bytes is None:
                raise InputError(f"'{level.name}' has no memory of a stated capacity", path=f"{level.name}.embodied.area_per_byte")
            parts.append(factor(f"{machine}.{level.name} area_per_byte", made.area_per_byte) * float(level.memory.capacity_bytes))
    return total([*parts, *(_silicon(child, machine, top=False) * float(child.count) for child in level.children)])


def check_claimed(level: Level, claimed: bool = False) -> None:
    """Raise InputError for silicon on a level or below that no die takes. claimed: whether one above does."""
    made = level.embodied
    claimed = claimed or (made is not None and any(die.area is None for die in made.dies.values()))
    if made is not None and made.has_silicon and not claimed:
        raise InputError("states silicon, and no die here or above is without an area to take it", path=f"{level.name}.embodied")
    for child in level.children:
        check_claimed(child, claimed)


def area_carbon_g_per_m2(process: str, tables: CarbonTables, model: str = "act") -> Ranged:
    """Carbon per area before yield, by a model of a fab: act (equation 5), or a column of the process. Raises InputError."""
    row = tables.process(process)
    if model != "act":
        if model not in row.area_carbon:
            raise InputError(f"model '{model}' says nothing of {process}", known=("act", *row.area_carbon), given=model, path="process")
        return factor(f"{process}: carbon per area ({model})", sourced(row.area_carbon[model], row.source))
    gas = row.gas_g_per_m2(tables.fab.abated)
    if row.energy_j_per_m2 is None or gas is None:
        raise InputError(f"ACT's terms of {process} are not known", known=tuple(row.area_carbon), given=model, path="process")
    return act_area_carbon(
        factor(f"{process}: fab energy", sourced(row.energy_j_per_m2, row.source)),
        factor("fab intensity", tables.fab.intensity_g_per_j),
        factor(f"{process}: gases", gas),
        factor("materials", tables.fab.materials_g_per_m2),
    )


def die_carbon_g(die: Die, area_m2: Ranged, tables: CarbonTables, model: str = "act", label: str = "die") -> Ranged:
    """Grams of one good die. label: what its own factors are called. Raises InputError."""
    per_area = area_carbon_g_per_m2(die.process, tables, model) * factor(f"{label} share", die.share)
    if die.dies_per_wafer == "estimated":
        charged = apply(lambda a: yields.wafer_area_m2() / yields.dies_per_wafer(a), area_m2)
    elif die.dies_per_wafer is not None:
        charged = fixed(yields.wafer_area_m2() / die.dies_per_wafer)
    else:
        charged = area_m2
    return die_carbon(charged, per_area, good_share(die.yield_ or tables.fab.yield_, die.process, area_m2, tables, label))


def doubtful_yield(die: Die, area_m2: Ranged, tables: CarbonTables, label: str) -> str:
    """Words for a yield that no one would build with: less than one die in a hundred works; '' for any other."""
    said = die.yield_ or tables.fab.yield_
    good = good_share(said, die.process, area_m2, tables, label).mid
    if good >= LEAST_GOOD:
        return ""
    way = "" if said.model == "spare" else "; model: spare counts what is routed around"
    return f"{label}: of dies of {area_m2.mid * CM2:,.4g} cm2 {good:.2g} work by model '{said.model}', which multiplies its carbon{way}"


def good_share(said: Yield, process: str, area_m2: Ranged, tables: CarbonTables, label: str) -> Ranged:
    """Share of dies that work. Raises InputError where a model needs defects that neither the die nor its process states."""
    if said.value is not None:
        return factor(f"{label} yield" if said is not tables.fab.yield_ else "yield", said.value)
    if said.defects_per_cm2 is not None:
        density = factor(f"{label} defects", said.defects_per_cm2)
    else:
        row = tables.process(process)
        if row.defects_per_cm2 is None:
            raise InputError(f"how many defects a cm2 of {process} has is not known: state it", path="yield.defects_per_cm2")
        density = factor(f"{process}: defects", sourced(row.defects_per_cm2, row.source))
    defects = area_m2 * density * CM2
    if said.model == "spare":
        assert said.cores is not None
        assert said.needed is not None
        cores, needed = said.cores, said.needed
        return apply(lambda lam, share: yields.spare(lam, cores, needed, share), defects, factor(f"{label} core share", said.core_share))
    if said.model == "negative_binomial":
        clustering = float(said.clustering)
        return apply(lambda lam: yields.negative_binomial(lam, clustering), defects)
    models = {"poisson": yields.poisson, "murphy": yields.murphy, "seeds": yields.seeds, "square_root": yields.square_root}
    return apply(models[said.model], defects)


def check_density(power_w: float, area_m2: float) -> None:
    """Raise InputError where a large die would be hotter than any cooling or colder than its leakage: W written for kW, or mm."""
    if not power_w or area_m2 < 1 / CM2:
        return
    density = float(power_w) / area_m2
    if not COLDEST_W_PER_M2 <= density <= HOTTEST_W_PER_M2:
        other = "W, not kW" if density > HOTTEST_W_PER_M2 else "kW"
        fact = f"static power of {float(power_w):g} W on {area_m2 * CM2:,.4g} cm2 of silicon is {density / CM2:.3g} W/cm2, want 0.1 to 500"
        raise InputError(f"{fact}: is it {other}?")
