"""Hybrid sharding: weights are sharded over some of the data-parallel axes, and over the others each holds the same shards.

A gradient is reduced to shards first, and those are summed over the replicas. Source: foreach_reduce (pytorch/pytorch 010ae4a,
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: a reduce-scatter, then an all-reduce of what it leaves). A mapper need not say
so: an axis that splits the batch and nothing else is one of data.
"""

from __future__ import annotations

from rackmodel.model.mapping import HomeSpec, LayoutSpec, MapperSpec
from rackmodel.model.workload import Workload


def with_replicas(mapper: MapperSpec, workload: Workload) -> MapperSpec:
    """The mapper whose homes say over which axes their shards are replicated."""
    data = [axis for axis in mapper.axes if _of_data(axis, mapper, workload)]
    homes = {
        name: said if isinstance(said, str) else [_said(home, data) for home in said] if isinstance(said, list) else _said(said, data)
        for name, said in mapper.homes.items()
    }
    return mapper if homes == mapper.homes else mapper.model_copy(update={"homes": homes})


def _said(home: HomeSpec, data: list[str]) -> HomeSpec:
    over = [axis for axis in data if axis not in home.axes]
    if home.replicas is not None or home.state == "replicate" or not over:
        return home
    return home.model_copy(update={"replicas": over})


def _of_data(axis: str, mapper: MapperSpec, workload: Workload) -> bool:
    """Whether an axis splits the batch in every operation and layout."""
    tables: list[MapperSpec | LayoutSpec] = [mapper, *mapper.layouts.values()]
    chosen = any(axis in axes for table in tables for axes in table.choose.values())
    splits = [table.split[axis] for table in tables if axis in table.split]
    ranks = [[one for one in said if isinstance(one, list) or one in workload.sizes] for said in splits if isinstance(said, list)]
    return not chosen and bool(workload.batch) and bool(ranks) and len(ranks) == len(splits) and all(r == [workload.batch] for r in ranks)
