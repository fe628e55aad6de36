"""The weight streaming white paper (seed 001) against our model: services, thresholds, scaling, sparsity, memory, power.

Its tables and figures are absent from the text at hand; what its prose claims is checked as a predicate over priced points.
Contradictions of the paper are findings that disagree. Golden values are worked by hand from that prose (tests/test_streaming.py).
"""

from __future__ import annotations

from math import inf, prod

import numpy as np

from rackmodel.carbon.tables import CarbonTables
from rackmodel.cost.network.streams import stream
from rackmodel.inputs import read_workload
from rackmodel.model.result import Result
from rackmodel.model.workload import Workload
from rackmodel.papers.reads import of_points, of_tables
from rackmodel.papers.streaming_results import activations, polaris
from rackmodel.papers.streaming_rules import MEMORYX_FLOP_A_BYTE, models, threshold_tokens, words_a_unit
from rackmodel.papers.streaming_table import first_stage, held, two_dimensions
from rackmodel.studies.findings import Finding, Need, judged, near
from rackmodel.studies.run import Points

WAFER_FLOP_PER_S, WAFER_BYTES_PER_S = 7.5e15, 150e9
CS3_TRAINING_W, CS3_IDLE_W, CS3_UTILISATION = 24.0e3, 19.7e3, 0.20  # seed 000, section 4 and 6: wafer alone
SPARSE_MODELS = ("GPT-3 XL", "GPT-3 1.3B")  # seed 001, 6.2.1 and 6.2.2
GPT3_LAYERS, GPT3_HIDDEN, BATCH_TOKENS = 96, 12288, 3_200_000
UNITS = 32


# -- what the services must give -----------------------------------------------------------------------------------------------


def _services(tables: CarbonTables) -> Finding:
    figures, each = {}, models(tables)
    for name, model in each.items():
        figures[f"{name}, PFLOP/s for a week"] = model.flop_per_s / 1e15
        figures[f"{name}, TB"] = model.memory_bytes / 1e12
        figures[f"{name}, Gb/s each way"] = model.bits_per_s / 1e9
    gpt3, largest = each["GPT-3 175B"], each["MT-NLG 530B"]
    figures |= {"GPT-3 weights in fp32, GB": 4 * gpt3.parameters / 1e9, "weights in 2.4 PB, T": 2.4e15 / 20 / 1e12}
    needs = [
        near("MT-NLG, PFLOP/s for a week", largest.flop_per_s / 1e15, 1420, 0.01),
        Need("GPT-3, TB", gpt3.memory_bytes / 1e12, most=4),
        near("GPT-3 weights in fp32, GB", figures["GPT-3 weights in fp32, GB"], 700, 0.01),
        near("weights in 2.4 PB, T", figures["weights in 2.4 PB, T"], 120, 0.01),
    ]
    why = "tokens are those of the models' own papers (GPT-3 300 G, MT-NLG 270 G: RECALLED); which rows the paper lists is unknown"
    claim = "a week of Megatron T-NLG takes 1,420 PFLOP/s, GPT-3's weights 700 GB and its state less than 4 TB; 2.4 PB hold 120 T weights"
    return judged("W01", "Tables 2 to 5", claim, needs, figures, weight="must", why=why)


def _frontier(tables: CarbonTables) -> Finding:
    need = models(tables)["MT-NLG 530B"].flop_per_s
    figures = {f"over {name}": need / tables.number(f"streaming.{name.lower()}") for name in ("Frontier", "Fugaku")}
    why = "1,420 PFLOP/s is 1.29 times 1.1 EFLOP/s; three times fits Fugaku (442 PFLOP/s, RECALLED), the system before"
    needs = [Need("over Frontier", figures["over Frontier"], least=3)]
    return judged("W02", "section 5.1", "1,420 PFLOP/s is more than three times Frontier", needs, figures, weight="must", why=why)


def _requirements(points: Points) -> Finding:
    """Words sent (for streaming: moved) by one unit in one step of GPT-3's layers, from the ledgers."""
    tokens, parameters = 1536 * 2048, 12.0 * GPT3_HIDDEN**2 * GPT3_LAYERS
    claimed = words_a_unit(UNITS, parameters, GPT3_LAYERS, tokens, GPT3_HIDDEN)
    width = {"all_reduce": 4, "reduce_scatter": 4, "all_gather": 2, "send": 2}
    figures: dict[str, float] = {}
    for run, words in claimed.items():
        rows = points.one(run=run).ledger.where(component="network").group(["action"], "amount")
        if run == "tensor":  # activations and their gradients in 16 bit
            ours = sum(rows.values()) / 2 / UNITS
        elif run == "stream":  # one copy in at the edge of each wafer, one out
            moved = (
                points.one(run=run)
                .ledger.where(level="memoryx", phase=["forward", "backward"], component="memory")
                .group(["action"], "amount")
            )
            ours = moved["read",] / 2 + moved["write",] / 4
        else:
            ours = sum(amount / width[action] for (action,), amount in rows.items()) / UNITS
        figures |= {f"{run}, G words, ours": ours / 1e9, f"{run}, G words, Table 1": words / 1e9}
    needs = [
        near(f"{run}, ours over Table 1", figures[f"{run}, G words, ours"] / figures[f"{run}, G words, Table 1"], 1.0, 0.05)
        for run in ("data", "fsdp", "pipeline", "stream")
    ]
    factor = figures["tensor, G words, ours"] / figures["tensor, G words, Table 1"]
    figures["tensor, ours over L·T·B"] = factor
    why = (
        "32 units; ring collectives; the table's equations are lost, so constants are not certain. Tensor: two all-reduces a layer "
        "move 4 (N-1)/N vectors a token, the paper says proportional to it. Streaming moves as much as sharded data parallelism"
    )
    claim = "data 2P, sharded data 3P, tensor ~LTB, pipeline 2TB, streaming 3P words a unit and step"
    needs.append(Need("tensor, ours over L·T·B", factor, 1, 4))
    return judged("W03", "Table 1", claim, needs, figures, why=why)


# -- thresholds and sparsity -----------------------------------------------------------------------------------------------------


def _a_layer(points: Points, workload: str, tokens: int) -> float:
    """Seconds of one more layer's forward pass: the first one's stream, which hides behind no other layer, is not in it."""
    whole, half = (points.one(run=run, workload=workload, b=tokens).latency_s for run in ("tokens", "half"))
    return (whole - half) / (GPT3_LAYERS / 2)


def _threshold(points: Points) -> Finding:
    figures = {
        "dense, tokens a wafer": threshold_tokens(WAFER_FLOP_PER_S, WAFER_BYTES_PER_S, 2),
        "compressed rows, tokens a wafer": threshold_tokens(WAFER_FLOP_PER_S, WAFER_BYTES_PER_S, 4),
    }
    needs = []
    for workload, label in (("gpt3_matrices", "dense"), ("gpt3_matrices_sparse", "compressed rows")):
        seconds = [_a_layer(points, workload, 16 * n) for n in (25_000, 50_000, 100_000, 200_000)]
        figures[f"{label}, time at 50,000 over 25,000 tokens"] = seconds[1] / seconds[0]
        figures[f"{label}, time at 200,000 over 100,000 tokens"] = seconds[3] / seconds[2]
        needs.append(near(f"{label}, time at 50,000 over 25,000 tokens", seconds[1] / seconds[0], 1.0, 0.01))
        needs.append(near(f"{label}, time at 200,000 over 100,000 tokens", seconds[3] / seconds[2], 2.0, 0.01))
    why = "forward pass of a layer of GPT-3 on 16 CS-2 (96 layers less 48): time stands still below the threshold b F / 2 BW and grows "
    why += "with the tokens above it; a whole pass takes longer by the first layer's stream, which hides behind nothing"
    claim = "our closed form: streaming is free from b·F / 2·BW tokens a wafer, 50,000 dense and 100,000 in compressed rows"
    return judged("W04", "ours, of section 7", claim, needs, figures, weight="ours", why=f"{why}. Seed 001 prints neither number")


def _sparse_layers(points: Points) -> Finding:
    ratio = {b: _a_layer(points, "gpt3_matrices", b) / _a_layer(points, "gpt3_matrices_sparse", b) for b in (400_000, 1_600_000, 3_200_000)}
    figures = {f"speed-up at {b // 16:,} tokens a wafer": value for b, value in ratio.items()}
    why = "compute falls to a quarter, traffic in compressed rows to a half: 2x where the stream binds, 4x from 100,000 x 4 / 2 tokens on"
    needs = [near("speed-up at 200,000 tokens a wafer", ratio[3_200_000], 4.0, 0.01)]
    return judged("W05", "section 6.2", "75 % zeros make weight layers 4.0 times as fast", needs, figures, weight="must", why=why)


def _sparse_models(tables: CarbonTables) -> Finding:
    """Operations of a whole model's forward pass: attention scores and the head stay dense."""
    model = read_workload("gpt", sets=["layers=24", "d=2048", "h=16", "f=8192", "v=50257", "b=1"])
    figures: dict[str, float] = {}
    needs = []
    rows = (tables.row(f"streaming.{name}") for name in ("densities", "fewer"))
    for name, density, claimed in zip(SPARSE_MODELS, *rows, strict=True):
        fewer = forward_macs(model, 1.0) / forward_macs(model, density)
        figures |= {f"{name} at {100 * (1 - density):g} %, fewer operations, ours": fewer, f"{name}, paper": claimed}
        needs.append(near(f"{name}, fewer operations", fewer, claimed, 0.05))
    why = "24 layers of 2048, sequence 2048, 50,257 words: scores (not causal) and the head keep a fifth of the dense operations"
    claim = "GPT-3 XL at 75 % costs 2.5x fewer operations, GPT-3 1.3B at 83.8 % 3x"
    return judged("W06", "sections 6.2.1, 6.2.2", claim, needs, figures, why=why)


def forward_macs(model: Workload, density: float) -> float:
    """Multiply-accumulates of a model's forward pass whose layers' weights have `density`; embedding and head stay dense."""
    total = 0.0
    for section in model.sections:
        for op in section.workload.ops.values():
            if op.kind.name != "einsum" or any(section.workload.tensors[a.tensor].bits == 0 for a in op.ins):
                continue
            weighted = section.layer and any(section.workload.tensors[a.tensor].kind == "weight" for a in op.ins)
            total += section.repeat * prod(section.workload.sizes[i] for i in op.indices) * (density if weighted else 1.0)
    return total


# -- scaling ---------------------------------------------------------------------------------------------------------------------


def _strong(points: Points) -> Finding:
    one = points.one(run="strong", accelerators=1).latency_s
    gain = {n: one / points.one(run="strong", accelerators=n).latency_s for n in (4, 16, 64, 128)}
    figures = {f"speed-up at {n} wafers": value for n, value in gain.items()}
    needs = [near(f"speed-up at {n} over linear", gain[n] / n, 1.0, 0.05) for n in (4, 16)]
    need = [points.one(run="strong", accelerators=n).memory_bytes_per_accelerator / 1e12 for n in (1, 64)]
    why = f"SRAM limit off (a wafer would hold {need[0]:.0f} TB alone, {need[1]:.1f} at 64): linear while compute binds, then the links"
    why += ", from 64 wafers on by our closed form (50,000 tokens a wafer), of which the paper says nothing"
    claim = "near-linear scaling to 16 CS-2, were the batch of 3.2 M tokens resident"
    return judged("W07", "Figure 24", claim, needs, figures, weight="must", why=why)


def _weak(points: Points) -> Finding:
    one = points.one(run="weak", accelerators=1).latency_s
    figures = {f"efficiency at {n} wafers": one / points.one(run="weak", accelerators=n).latency_s for n in (16, 192)}
    why = "100,000 tokens a wafer; the tree adds a start-up a level, 8 us at 192 wafers"
    needs = [Need("least efficiency", min(figures.values()), least=0.95)]
    return judged("W08", "ours, of Figure 24", "weak scaling is linear to 192 wafers", needs, figures, weight="ours", why=why)


# -- memory ----------------------------------------------------------------------------------------------------------------------


def _sram(result: Result) -> float:
    """Bytes of one wafer."""
    assert result.machine is not None
    memory = result.machine.accelerator.memory
    assert memory is not None
    return memory.capacity_bytes or inf


def _shards(points: Points) -> Finding:
    point = points.one(run="checkpoint")
    sram = _sram(point)
    a_token = point.memory["activations"] / (BATCH_TOKENS / 64)
    whole = point.memory_bytes_per_accelerator / (BATCH_TOKENS / 64)
    figures = {
        "bytes a token, one vector a layer": a_token,
        "tokens a wafer holds": sram // a_token,
        "wafers for 3.2 M tokens": -(-BATCH_TOKENS * a_token // sram),
        "the same with the workspace of a layer": -(-BATCH_TOKENS * whole // sram),
    }
    why = (
        "2 H L bytes a token of GPT-3 fill 40 GB at 16,954 tokens, a third of what free streaming needs; 189 wafers hold "
        "the batch, of 192 joined at most; a layer made again needs room beside. The paper keeps the whole batch on the wafers"
    )
    claim = "shards of hundreds of thousands of tokens stay on the wafer"
    needs = [Need("tokens a wafer holds", figures["tokens a wafer holds"], least=200_000)]
    return judged("W09", "section 7.1", claim, needs, figures, weight="must", why=why)


def _limit(points: Points) -> Finding:
    on, off = (points.one(run="sram", **{"wafer.memory.enforce": said}) for said in ("true", "false"))
    assert on.mapping.step is not None
    assert off.mapping.step is not None
    figures = {
        "step with 40 GB, s": on.latency_s,
        "step without limit, s": off.latency_s,
        "factor": on.latency_s / off.latency_s,
        "sequences a wafer has in flight, with 40 GB": float(on.mapping.step.micro_batch),
        "sequences a wafer has in flight, without": float(off.mapping.step.micro_batch),
        "memory without limit, GB": off.memory_bytes_per_accelerator / 1e9,
    }
    why = f"each micro-batch streams all weights again; with 40 GB {on.mapping.step.micro_batch} at once is best"
    claim = "GPT-3 on 16 CS-2 with all of a batch of 1,536 sequences resident (as Figure 24's near-linear scaling takes for granted)"
    return judged("W10", "Figure 24", claim, [Need("time with 40 GB over without", figures["factor"], most=1.1)], figures, why=why)


def _genslm(points: Points) -> Finding:
    one, sixteen = (points.one(run="genslm", accelerators=n) for n in (1, 16))
    figures = {
        "memory of one wafer, GB": one.memory_bytes_per_accelerator / 1e9,
        "of it activations, GB": one.memory["activations"] / 1e9,
        "efficiency at 16": one.latency_s / sixteen.latency_s,
    }
    why = (
        "fits with one vector a layer kept, the rest made again, and attention scores never held (profile ideal_flash); held, one layer's "
        "scores and gradients need 12 GB more than there is. The model's shape is ASSUMED"
    )
    needs = [
        Need("memory of one wafer over its SRAM", one.memory_bytes_per_accelerator / _sram(one), most=1),
        Need("efficiency at 16", figures["efficiency at 16"], least=0.95),
    ]
    claim = "25 B weights at sequence 10,240 train on one CS-2, linear to 16"
    return judged("W11", "section 8.3", claim, needs, figures, why=why)


# -- the service -----------------------------------------------------------------------------------------------------------------


def _round_trip(points: Points) -> Finding:
    result = points.one(run="weak", accelerators=192)
    layer = result.latency_s / GPT3_LAYERS / 3
    assert result.machine is not None
    ways = [stream(result.machine, "memoryx", np.arange(192), kind) for kind in ("broadcast", "reduce")]
    figures = {
        "round trip at 192 wafers, us": 1e6 * sum(sum(way.latency_s) for way in ways),
        "forward pass of the first layer, us": layer * 1e6,
    }
    why = "four levels of nodes each way at 1 us a hop (ASSUMED); the stream's own start-up is in every layer's time"
    hidden = figures["round trip at 192 wafers, us"] / figures["forward pass of the first layer, us"]
    needs = [Need("round trip over first layer", hidden, most=1)]
    return judged("W12", "section 7.4", "the first layer hides the round trip to MemoryX", needs, figures, weight="must", why=why)


def _update(points: Points) -> Finding:
    result = points.one(run="sram", **{"wafer.memory.enforce": "false"})
    rows = result.ledger.where(level="memoryx", phase="optimizer", component="compute")
    down = result.ledger.where(level="swarmx", action="broadcast").total("seconds")
    figures = {
        "GPT-3, MemoryX's update, ms": rows.total("seconds") * 1e3,
        "of it the step waits for, ms": rows.total("exposed_seconds") * 1e3,
        "streams down, ms": down * 1e3,
        "operations a weight and step that MemoryX can do": MEMORYX_FLOP_A_BYTE * 4.0,
    }
    why = "1,000 operations for each of the 4 bytes that a weight moves in a step, each way; Adam takes 12"
    needs = [
        Need("update over streams down", rows.total("seconds") / down, most=1),
        Need("of the update, what the step waits for", rows.total("exposed_seconds") / rows.total("seconds"), most=0.01),
    ]
    return judged("W13", "section 6.3", "MemoryX updates as fast as it streams", needs, figures, weight="must", why=why)


def _measured(points: Points) -> list[tuple[str, str, float, float, float, float]]:
    """One CS-3: (model, scores, kW of the wafer, kW of MemoryX and SwarmX, used share of the peak, the same without recompute)."""
    found = []
    for workload, label in (("llama3_8b", "Llama 3.1 8B"), ("llama", "Gemma 2 27B")):
        for profile, scores in (("ideal", "scores held"), ("ideal_flash", "scores never held")):
            result = points.one(run="power", workload=workload, profile=profile)
            watts = [
                result.ledger.where(level=levels).total("joules") / result.latency_s
                for levels in (["wafer", "core"], ["swarmx", "memoryx"])
            ]
            used = result.ledger.where(component="compute", action="mac").total("amount") / result.latency_s / result.peak_flop_per_s
            found.append((label, scores, watts[0] / 1e3, watts[1] / 1e3, used, result.mfu or 0.0))
    return found


def _power(points: Points) -> Finding:
    figures: dict[str, float] = {}
    for label, scores, wafer, outside, *_ in _measured(points):
        figures |= {f"{label}, {scores}, wafer, kW": wafer, f"{label}, {scores}, MemoryX and SwarmX, kW": outside}
    needs = [near(f"{row[0]}, {row[1]}, wafer, kW", row[2], CS3_TRAINING_W / 1e3, 0.1) for row in _measured(points)]
    figures |= {"measured, wafer, kW": CS3_TRAINING_W / 1e3, "measured idle, kW": CS3_IDLE_W / 1e3}
    why = (
        "above idle ours is operations, SRAM traffic and nothing else; the measured 4.3 kW above idle at a use below 20 % would "
        "be 1.4 pJ an operation, seven times ours. The mesh takes a fiftieth of what operations do (`wse2_cores`); three operands from "
        "SRAM for every multiply-add, which are not counted here, would be 0.2 pJ an operation, 1 at the high end of its range: clocks "
        "and control are left; the batch is unknown"
    )
    return judged("W14", "seed 000, section 4", "training on one CS-3 draws about 24 kW", needs, figures, why=why)


def _utilisation(points: Points) -> Finding:
    figures: dict[str, float] = {}
    for label, scores, _, _, used, useful in _measured(points):
        figures |= {f"{label}, {scores}, used, %": 100 * used, f"{label}, {scores}, without what is made again, %": 100 * useful}
    figures["reported, % at most"] = 100 * CS3_UTILISATION
    needs = [Need(f"{row[0]}, {row[1]}, used", row[5], most=CS3_UTILISATION) for row in _measured(points)]
    why = (
        "44 GB hold one to four sequences of 8,192 at a time, each of which streams all weights: links bind, the wafer waits. With scores "
        "never held the 8B model gets four. Sequence length and batch are ASSUMED; the paper suspects its own figure"
    )
    claim = "training uses less than 20 % of a CS-3's FLOP/s"
    return judged("W15", "seed 000, section 6", claim, needs, figures, why=why)


CHECKS = (
    *of_tables(_services, _frontier),
    *of_points(_requirements, held, two_dimensions, first_stage, _threshold, _sparse_layers),
    *of_tables(_sparse_models),
    *of_points(_strong, _weak, _shards, _limit, _genslm, activations, polaris, _round_trip, _update, _power, _utilisation),
)
