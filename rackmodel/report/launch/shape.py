"""Sizes of a transformer, read off the ranks of its operations."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rackmodel.errors import InputError
from rackmodel.model.workload import Op, Workload


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer, and the ranks they were read off. groups: key-value heads · ffn: of one expert, where there are any."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    ffn: int
    sequence: int
    vocab: int
    experts: int
    top_k: int
    rms: bool
    gated: bool
    rope: bool
    tied: bool
    biased: bool
    dropout: bool
    body: Workload
    position: str
    head_ranks: tuple[str, ...]
    ffn_rank: str
    vocab_rank: str
    expert_rank: str
    scores: str
    key_rank: str


def model_shape(workload: Workload) -> Shape:
    """Sizes of a transformer in sections, by what its ranks do. Raises InputError where it has no attention or feed-forward."""
    layer = workload.first_layer
    body = layer.workload if layer is not None else workload
    scores = _scores(body)
    if layer is None or not layer.stream_in or scores is None:
        raise InputError("no layer with attention (a softmax over a product of two activations)", path="--flags")
    size, ops = workload.sizes, list(body.ops.values())
    carried = {rank for weight in body.weights for rank in body.tensors[weight].ranks}
    stream = body.tensors[layer.stream_in].ranks
    width = [rank for rank in stream if rank in carried]
    position = next((rank for rank in stream if rank != workload.batch and rank not in carried), "")
    maker, key = scores
    heads = tuple(rank for rank in maker.out.names if rank not in (workload.batch, position, key))
    keys = next(access for access in maker.ins if key in access.names)
    spread = next((op for op in ops if op.statement.kind == "dispatch"), None)
    experts = [rank for rank in spread.out.names if rank not in spread.ins[0].names] if spread is not None else []
    inner = [rank for rank in carried if rank not in (*width, *heads, *maker.contracted, *experts)]
    if len(inner) != 1 or len(experts) > 1 or not position:
        raise InputError(f"no single feed-forward rank among the weights' ranks {sorted(carried)}", path="--flags")
    first, last = workload.sections[0].workload, workload.sections[-1].workload
    vocab = [rank for weight in last.weights for rank in last.tensors[weight].ranks if rank not in width]
    norms = [op for op in ops if op.statement.kind in ("layernorm", "rmsnorm")]
    kinds = {op.statement.kind for section in workload.sections for op in section.workload.ops.values()}
    return Shape(
        layers=sum(section.repeat for section in workload.sections if section.layer),
        hidden=prod(size[rank] for rank in width),
        heads=prod(size[rank] for rank in heads),
        groups=prod(size[rank] for rank in heads if rank in keys.names),
        head=prod(size[rank] for rank in maker.contracted),
        ffn=size[inner[0]],
        sequence=size[position],
        vocab=prod(size[rank] for rank in vocab),
        experts=size[experts[0]] if experts else 0,
        top_k=round(body.tensors[spread.out.tensor].density * size[experts[0]]) if spread is not None and experts else 0,
        rms=any(op.statement.kind == "rmsnorm" for op in norms),
        gated="swiglu" in kinds,
        rope="rope" in kinds,
        tied=bool(set(first.weights) & set(last.weights)),
        biased=any(len(op.ins) > 2 for op in norms),
        dropout="dropout" in kinds,
        body=body,
        position=position,
        head_ranks=heads,
        ffn_rank=inner[0],
        vocab_rank=vocab[0] if vocab else "",
        expert_rank=experts[0] if experts else "",
        scores=maker.name,
        key_rank=key,
    )


def _scores(body: Workload) -> tuple[Op, str] | None:
    """The product of queries and keys, and the index the softmax normalises over: neither operand is a weight."""
    for op in body.ops.values():
        if op.statement.kind == "softmax" and len(op.over) == 1:
            maker = body.ops.get(body.producer.get(op.ins[0].tensor, ""))
            while maker is not None and maker.statement.kind == "scale":
                maker = body.ops.get(body.producer.get(maker.ins[0].tensor, ""))
            if maker is not None and len(maker.ins) == 2 and not any(access.tensor in body.weights for access in maker.ins):
                return maker, op.over[0]
    return None
