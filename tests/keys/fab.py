"""Flips of the keys of a machine's own fab and carbon tables."""

from __future__ import annotations

from tests.keys.flip import Flip

_FAB = {"arch.fab": {}}

FAB = {
    "Architecture.fab": Flip("layers", "arch.fab", {"grid": "coal"}),
    "Architecture.carbon": Flip("layers", "arch.carbon", "atlantis", refused="carbon"),
    "OwnFab.grid": Flip("layers", "arch.fab.grid", "solar", _FAB),
    "OwnFab.abated": Flip("layers", "arch.fab.abated", 0.99, _FAB),
    "OwnFab.materials": Flip("layers", "arch.fab.materials", "300 g/cm^2", _FAB),
    "OwnFab.package": Flip("layers", "arch.fab.package", "0.3 kg", _FAB),
    "OwnFab.yield": Flip("layers", "arch.fab.yield", {"value": 0.5}, _FAB),
}
