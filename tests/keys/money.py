"""Flips of the keys of money, and of weights that are wired into the compute."""

from __future__ import annotations

from tests.keys.flip import Flip

_GPU = "arch.tree.children.0.children.0"
_COST = f"{_GPU}.cost"
_BOUGHT = {_COST: {"price": "1000 usd"}, "arch.site.electricity": "0.1 usd/kWh", "arch.site.building": "1 usd/W"}
_MADE = {**_BOUGHT, _COST: {"engineering": {"masks": {"set": "30 Musd", "own": "2 Musd", "designs": 2}}}}
_MASKS = f"{_COST}.engineering.masks"
_WIRED = {f"{_GPU}.compute.wired": {"stages": 2}, "work.phases": ["forward"], f"{_GPU}.children.0.memory": {"bandwidth": "1 GB/s"}}

MONEY = {
    "Level.cost": Flip("layers", "arch.tree.children.0.cost", {"price": "500 usd"}, _BOUGHT),
    "LevelCost.price": Flip("layers", f"{_COST}.price", "2000 usd", _BOUGHT),
    "LevelCost.power": Flip("layers", f"{_COST}.power", "300 W", _BOUGHT),
    "LevelCost.engineering": Flip("layers", f"{_COST}.engineering", {"other": "1 Musd"}, _BOUGHT),
    "Engineering.masks": Flip("layers", _MASKS, {"set": "10 Musd", "own": "1 Musd"}, _MADE),
    "Engineering.other": Flip("layers", f"{_COST}.engineering.other", "5 Musd", _MADE),
    "Engineering.respin": Flip("layers", f"{_COST}.engineering.respin", "5 Musd", _MADE),
    "MaskSet.set": Flip("layers", f"{_MASKS}.set", "20 Musd", _MADE),
    "MaskSet.own": Flip("layers", f"{_MASKS}.own", "3 Musd", _MADE),
    "MaskSet.designs": Flip("layers", f"{_MASKS}.designs", 4, _MADE),
    "Site.electricity": Flip("layers", "arch.site.electricity", "0.2 usd/kWh", _BOUGHT),
    "Site.building": Flip("layers", "arch.site.building", "2 usd/W", _BOUGHT),
    "Compute.wired": Flip("layers", f"{_GPU}.compute.wired", {"stages": 3}, {"work.phases": ["forward"]}),
    "Wired.stages": Flip("layers", f"{_GPU}.compute.wired.stages", 3, _WIRED),
    "Wired.interval": Flip("layers", f"{_GPU}.compute.wired.interval", "1 s", _WIRED),
    "Wired.cache": Flip("layers", f"{_GPU}.compute.wired.cache", "core", _WIRED),
}
