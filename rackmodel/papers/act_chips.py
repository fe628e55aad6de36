"""Table 12 of seed 003: chips of a server and two phones by ACT's own tables, the released code's yield and packages."""

from __future__ import annotations

from rackmodel.carbon.silicon import chip_carbon
from rackmodel.carbon.tables import CarbonTables
from rackmodel.papers.act_reduce import area_carbon
from rackmodel.papers.claims import Computed

DISKS = {"nand_30nm": "ddr3_50nm", "nand_v3_tlc": "ddr4_10nm"}
"""Flash → the cache beside it (Table 12)."""


def memory_g(tables: CarbonTables, technology: str, capacity_bytes: float, packages: float = 0.0) -> float:
    """Memory with its packages, by the released code: capacity over yield, grams."""
    chips = chip_carbon(capacity_bytes, float(tables.technology(technology))) / tables.number("act.yield")
    return chips + packages * float(tables.fab.package_g)


def disk_g(tables: CarbonTables, size: str, flash: str, cache: str) -> float:
    """One of the Dell R740's SSDs with its cache and packages, grams. size: the figure that says its bytes."""
    drive = memory_g(tables, flash, tables.number(size, "byte"), tables.number("r740.disk_packages"))
    return drive + memory_g(tables, cache, tables.number("r740.disk_cache", "byte"))


def disks_g(tables: CarbonTables, flash: str, cache: str) -> float:
    """Its 31 TB, grams."""
    return tables.number("r740.disks") * disk_g(tables, "r740.disk", flash, cache)


def table_12(tables: CarbonTables) -> dict[str, Computed]:
    """Its cells in kilograms, by the names of specs/carbon/claims."""
    f = tables.number
    cpu = {
        node: f("r740.cpus") * f("r740.cpu_area", "metre**2") * area_carbon(tables, node, f("r740.fab", "gram/joule"))
        for node in ("28nm", "14nm")
    }
    dimms, dimm, packages = f("r740.dimms"), f("r740.dimm", "byte"), f("r740.dimm_packages")
    phone = {
        node: f("fairphone.cpu_area", "metre**2") * area_carbon(tables, node, f("r740.fab", "gram/joule")) for node in ("28nm", "14nm")
    }
    ics = {node: f("fairphone.ics_area", "metre**2") * area_carbon(tables, node, f("r740.fab", "gram/joule")) for node in ("28nm", "14nm")}
    package = float(tables.fab.package_g)
    ram, flash = memory_g(tables, "ddr3_50nm", f("fairphone.ram", "byte"), 1), memory_g(tables, "nand_30nm", f("fairphone.flash", "byte"))
    small = {flash: disk_g(tables, "r740.small_disk", flash, cache) for flash, cache in DISKS.items()}
    lean = memory_g(tables, "nand_v3_tlc", f("fairphone.flash", "byte"), 1) + memory_g(tables, "lpddr4", f("fairphone.ram", "byte"), 1)
    return {
        "act-20": dimms * memory_g(tables, "ddr3_50nm", dimm, packages) / 1e3,
        "act-21": dimms * memory_g(tables, "ddr4_10nm", dimm, packages) / 1e3,
        "act-22": disks_g(tables, "nand_30nm", "ddr3_50nm") / 1e3,
        "act-23": disks_g(tables, "nand_v3_tlc", "ddr4_10nm") / 1e3,
        "act-24": small["nand_30nm"] / 1e3,
        "act-25": small["nand_v3_tlc"] / 1e3,
        "act-26": cpu["28nm"] / 1e3,
        "act-27": cpu["14nm"] / 1e3,
        "act-28": (phone["28nm"] + package) / 1e3,
        "act-29": (phone["14nm"] + package) / 1e3,
        "act-30": (ics["28nm"] + f("fairphone.ics") * package) / 1e3,
        "act-31": (ics["14nm"] + f("fairphone.ics") * package) / 1e3,
        "act-32": ram / 1e3,
        "act-33": memory_g(tables, "ddr4_10nm", f("fairphone.ram", "byte"), 1) / 1e3,
        "act-34": (flash + package) / 1e3,
        "act-35": (ram + flash + package) / 1e3,
        "act-36": lean / 1e3,
        "act-37": memory_g(tables, "nand_10nm", f("iphone.flash", "byte")) / 1e3,
        "act-38": memory_g(tables, "nand_v3_tlc", f("iphone.flash", "byte")) / 1e3,
    }
