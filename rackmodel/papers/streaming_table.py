"""Table 1 of the weight streaming white paper (seed 001, section 3) beyond its words sent: memory, tensors in two dimensions, stages.

The table's equations are lost in the text at hand; its prose fixes how each scales. A word of parameters is one of the weights with its
gradient and optimizer state; a word of activations one vector a token and layer, of which ours keeps seven of GPT-3's matrices (the inputs
of both products, d and 6 d).
"""

from __future__ import annotations

from math import sqrt

from rackmodel.papers.streaming_rules import words_held
from rackmodel.studies.findings import Finding, judged, near
from rackmodel.studies.run import Points

UNITS, BATCH, POSITIONS, LAYERS, HIDDEN = 32, 1536, 2048, 96, 12288
BYTES_A_PARAMETER = 2 + 4 + 12  # weight, gradient and state in 16, 32 and 96 bit
VECTORS = 7  # d and 6 d
MESHES = (16, 64, 256)


def held(points: Points) -> Finding:
    """The memory column: words of one unit, by scheme."""
    parameters = 12.0 * HIDDEN**2 * LAYERS
    figures: dict[str, float] = {}
    needs = []
    for run, (weights, activations) in words_held(UNITS, parameters, LAYERS, BATCH * POSITIONS, HIDDEN).items():
        units = 16 if run == "tensor_2d" else UNITS
        memory = (points.one(run=run, accelerators=units) if run == "tensor_2d" else points.one(run=run)).memory
        ours = sum(memory.get(part, 0.0) for part in ("weights", "gradients", "optimizer")) / BYTES_A_PARAMETER
        kept = memory["activations"] / 2 / VECTORS
        if run == "tensor_2d":  # a square mesh of 16: every vector whole along one of its sides
            weights, activations = parameters / units, activations * UNITS / units
        figures |= {f"{run}, parameters, G words": ours / 1e9, f"{run}, activations, G words": kept / 1e9}
        figures |= {f"{run}, parameters, Table 1": weights / 1e9, f"{run}, activations, Table 1": activations / 1e9}
        if weights:
            needs.append(near(f"{run}, parameters over Table 1", ours / weights, 1.0, 0.05))
        if run == "tensor_2d":
            figures["tensor_2d, activations over Table 1"] = kept / activations
        else:
            needs.append(near(f"{run}, activations over Table 1", kept / activations, 1.0, 0.05))
    why = (
        "32 units (tensor: 16), with what a step keeps for its backward pass; streaming keeps its weights in MemoryX. Tensor parallelism "
        "in two dimensions splits parameters by all units but keeps each vector whole along a side of the mesh, the root of their "
        "number more than the table's share: what was gathered would be gathered again"
    )
    claim = "a unit holds P words and TLB/N (data), P/N and TLB/N (sharded), P/N (tensor), no weights (streaming)"
    return judged("W03-memory", "Table 1", claim, needs, figures, why=why)


def two_dimensions(points: Points) -> Finding:
    """Words that a unit sends on square meshes."""
    sent = {}
    for n in MESHES:
        rows = points.one(run="tensor_2d", accelerators=n).ledger.where(component="network").group(["action"], "amount")
        sent[n] = sum(rows.values()) / 2 / n
    figures = {f"G words a unit on {n}": words / 1e9 for n, words in sent.items()}
    figures |= {f"over 1/sqrt(N), {n} to {4 * n}": sent[4 * n] / sent[n] * sqrt(4) for n in MESHES[:-1]}
    why = "an all-reduce along a side of r units sends 2 (r - 1)/r of a share 1/r: half as much on four times the units, but for (r - 1)/r"
    needs = [near("words on 256 units over those on 64", sent[256] / sent[64], 0.5, 0.1)]
    return judged("W03-2d", "Table 1", "split in two dimensions, what a unit sends falls with the root of N", needs, figures, why=why)


def first_stage(points: Points) -> Finding:
    """Samples whose activations the first stage of a pipeline keeps."""
    result = points.one(run="pipeline")
    step = result.mapping.step
    assert step is not None
    a_sample = LAYERS / UNITS * VECTORS * HIDDEN * POSITIONS * 2
    shards = result.memory["activations"] / a_sample / step.micro_batch
    figures = {"samples kept by the first of 32 stages": shards, "2 N - 1": 2.0 * UNITS - 1}
    why = (
        "one forward, one backward keeps N at the first stage: no more start before the first comes back. 2 N - 1 is a pipeline that takes "
        "a sample every slot, forward and backward side by side, as the wafer's own did"
    )
    needs = [near("samples kept by the first stage over 2 N - 1", shards / (2 * UNITS - 1), 1.0, 0.05)]
    return judged("W03-stages", "Table 1", "the first stage keeps activations of 2 N - 1 batch shards", needs, figures, why=why)
