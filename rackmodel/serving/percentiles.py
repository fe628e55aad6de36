"""Percentiles of an operating point of replicas: requests one by one through one of them, once they have left each other's company.

The laws of the steady state give means. Here the clients of one replica send WAVES requests each, of lengths that are even with the
service's variation; the first ones of all clients, which come at once, are left out. Where requests come at a rate, they do, and as many
as are there in the mean are left out. The same figures every time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rackmodel.errors import InputError
from rackmodel.serving.offers import Offer, Service, engine_of
from rackmodel.serving.trace import drawn_trace, simulate

WAVES = 10
FEWEST, MOST = 100, 4000
"""Requests that are simulated."""
SHOWN = (50.0, 90.0, 99.0)


def percentiles_of(service: Service, offer: Offer) -> dict[str, dict[str, float]]:
    """ttft, tpot → p50, p90, p99, in seconds; tpot not of answers of one token. Raises InputError where a replica has no whole number of
    clients, or requests no whole number of tokens."""
    if offer.rate is None and offer.clients % 1.0:
        fact = f"{offer.clients:g} clients of each of {offer.replicas} replicas, whose requests are run one by one"
        raise InputError(f"{fact}: want a multiple of {offer.replicas}", path="space.clients")
    engine = engine_of(service, offer.deployment, offer.widths)
    clients = int(np.ceil(offer.clients))
    count = min(max(WAVES * clients, FEWEST), max(MOST, 2 * clients))
    wide = min(3.0**0.5 * service.variation, 1.0)
    trace = drawn_trace(count, (service.prompt, service.output, (1.0 - wide) / (1.0 + wide)), offer.rate, 0)
    schedule = engine.scheduled(1, {"token_budget": float(offer.budget), **service.drafts})
    loop = clients if offer.rate is None else None
    found = simulate(engine, replace(trace, reused=service.reused), schedule, engine.cache_tokens, loop, engine.held_tokens)
    after = slice(clients, None)
    return {
        name: {f"p{share:g}": float(np.percentile(values[after], share)) for share in SHOWN}
        for name, values in (("ttft", found.ttft_s), ("tpot", found.tpot_s))
        if name == "ttft" or service.output > 1.0
    }
