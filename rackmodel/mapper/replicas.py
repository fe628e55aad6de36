"""Hybrid sharding: weights are sharded over some of the data-parallel axes, and over the others each holds the same shards.

A gradient is reduced to shards first, and those are summed over the replicas. Source: foreach_reduce (pytorch/pytorch 010ae4a,
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: a reduce-scatter, then an all-reduce of what it leaves). A mapper need not say
so: an axis is one of data that splits what no product's weight has, the batch or the tokens of a sequence.
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
    """Whether an axis splits, in every operation and layout, ranks that the weights of products lack."""
    tables: list[MapperSpec | LayoutSpec] = [mapper, *mapper.layouts.values()]
    chosen = any(axis in axes for table in tables for axes in table.choose.values())
    splits = [table.split[axis] for table in tables if axis in table.split]
    ranks = [[one for one in said if isinstance(one, list) or one in workload.sizes] for said in splits if isinstance(said, list)]
    if chosen or not ranks or len(ranks) < len(splits):
        return False
    split = {rank for row in ranks for one in row for rank in ([one] if isinstance(one, str) else one)}
    return all(ranks) and not split & _multiplied(workload)


def _multiplied(workload: Workload) -> set[str]:
    """Ranks of the weights that products multiply; those that are added (a table of positions) may have the tokens'."""
    products = workload.products
    weights = {access.tensor for op in products for access in op.ins if workload.tensors[access.tensor].kind == "weight"}
    return {rank for name in weights for rank in workload.tensors[name].ranks}
