"""Deployments of a served model in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackmodel.serving.offers import Offered
    from rackmodel.serving.steps import Deployment

NARROW = 20  # columns that 80 leave for the words of a deployment, all figures whole


def deployed(offer: Offered) -> str:
    """'2 x tp 4' of replicas, '2 x tp 2 > 1 x tp 4' of pools of prompts and of decodes, in two lines where a terminal is narrow."""
    from rackmodel.report.tables import WIDE, terminal_width
    from rackmodel.serving.offers import Offer
    from rackmodel.serving.pool_search import PoolsOffer

    if isinstance(offer, PoolsOffer):
        pools = [f"{pool.count} x {_degrees(pool.deployment)}" for pool in (offer.prompts, offer.decodes)]
        return (" > " if len(" > ".join(pools)) < NARROW or terminal_width() >= WIDE else " >\n").join(pools)
    assert isinstance(offer, Offer)
    return f"{offer.replicas} x {_degrees(offer.deployment)}"


def _degrees(one: Deployment) -> str:
    parts = [("tp", one.tensor), ("pp", one.pipeline), ("dp", one.attention_data), ("ep", one.expert), ("cp", one.context)]
    return " ".join(f"{name} {degree}" for name, degree in (*parts, ("pcp", one.prompt_context)) if degree > 1) or "1"
