"""Flips of the keys of architectures."""

from __future__ import annotations

from tests.keys.cases import DROP
from tests.keys.flip import Flip

_GPU = "arch.tree.children.0.children.0"
_CORE = "arch.tree.children.0.children.0"  # of the small cores
_BUFFER = "arch.tree.children.0"
_NET = "arch.tree.children.0.network"
_SM = "arch.tree.children.0.children.0.compute.kernels"
_STORE = "arch.tree.children.1"
_STREAMED = {"mapper.axes": {"dp": {"degree": 8}}, "mapper.split": {"dp": ["b"]}, "mapper.homes": {"weights": {"at": "store"}}}
_ADDING = {**_STREAMED, "arch.tree.network.topology": "switch", "arch.tree.network.reduce": True}
_IN_NETWORK = {f"{_NET}.topology": "switch", f"{_NET}.reduce": True, f"{_NET}.multicast": True, "mapper.algorithms": ["in_network"]}
_WIDE = {"mapper.axes": {"tp": {"degree": 8}}, "mapper.split": {"tp": ["f"]}}
_EXCHANGED = {  # an all-to-all of all eight over two switches, whose inner links are the slower ones
    "arch.tree.network.topology": "switch",
    f"{_NET}.topology": "switch",
    f"{_NET}.bandwidth": "1 GB/s",
    "mapper.axes": {"tp": {"degree": 8}},
    "mapper.split": {"tp": ["s"]},
    "mapper.choose": {"FC2": {"tp": "f"}},
}
_SWITCHED = {f"{_NET}.topology": "switch", "mapper.axes.tp.degree": 4, "mapper.axes.dp.degree": 2}
_FOUR = {"mapper.axes.tp.degree": 4, "mapper.axes.dp.degree": 2}
_SPLIT = {f"{_GPU}.memory.ports": "split"}
_ATOM = {f"{_CORE}.compute.atom": {"m": 4, "n": 4, "k": 4}}
_RATES = {f"{_GPU}.compute.precisions": {"16 bit": {"rate": "10 TFLOP/s"}}}
_NEST_RATES = {f"{_CORE}.compute.precisions": {"16 bit": {"rate": "20 GFLOP/s"}}}
_TILES = {f"{_SM}.tiles": [{"m": 128, "n": 128}]}
_FLASH = {"profile.attention": "flash"}
FITTED = {
    "profile.kernels": "fitted",
    f"{_SM}.products": {
        "bf16": {"start": "1 us", "rate": 0.5, "load": "0.1 GB/s", "step": "0 ns", "memory": 0.5, "split": "0 us", "quantise": 1}
    },
}
_16 = f"{_SM}.products.bf16"
UNSPLIT = {"profile.kernels": "fitted", f"{_SM}.products": {"bf16": {"start": "1 us", "rate": 0.5, "load": "9 GB/s", "memory": 0.5}}}
ATTEND = {
    "profile.attention": "flash",
    "profile.kernels": "fitted",
    f"{_SM}.attention": {
        "mine": {
            "decode": {"bf16": {"start": "5 us", "memory": 0.5, "load": "50 GB/s", "block": {"16": "1 us"}, "step": {"16": "1 ns"}}},
            "prefill": {"bf16": {"start": "5 us", "memory": 0.5, "rate": {"16": 0.5}, "block": {"16": "1 us"}, "tail": 0.5}},
        },
        "other": {"prefill": {"bf16": {"start": "50 us", "memory": 0.5, "rate": {"16": 0.5}, "block": {"16": "1 us"}}}},
    },
}
ATTEND_UNLIKE = {
    **ATTEND,
    "work.sizes": {"b": 2, "s": 128, "t": "s", "h": 4, "d": 64, "e": 16, "v": 32},
    "work.einsums": {
        "Q": "Q[b,s,h,e] = X[b,s,d] * WQ[d,h,e]",
        "K": "K[b,s,h,e] = X[b,s,d] * WK[d,h,e]",
        "V": "V[b,s,h,v] = X[b,s,d] * WV[d,h,v]",
        "QK": "A[b,h,s,t] = Q[b,s,h,e] * K[b,t,h,e]",
        "softmax": "P[b,h,s,t] = softmax(A[b,h,s,t]) over t",
        "AV": "Z[b,s,h,v] = P[b,h,s,t] * V[b,t,h,v]",
    },
}
UNLIKE_NAMED = {**ATTEND_UNLIKE, "profile.attention_kernel": "mine", f"{_SM}.latent_kernel": "other"}
_CALL = {"start": "5 us", "memory": 0.5, "rate": {"16": 0.5}, "block": {"16": "1 us"}}
_LASTS = {"training": {"bf16": {"forward": _CALL, "backward": _CALL}}}
TRAINED = {
    "profile.attention": "flash",
    "profile.kernels": "measured",
    "profile.products": "fitted",
    f"{_SM}.attention": {"mine": _LASTS, "other": {"training": {"bf16": {**_LASTS["training"]["bf16"], "lasting": 0.5}}}},
    f"{_SM}.training_kernel": "mine",
}
WITH_PROMPTS = {"mine": {**_LASTS, "prefill": {"bf16": _CALL}}}
NAMED_TO_TRAIN = {**_FLASH, "profile.products": "fitted", f"{_SM}.attention": WITH_PROMPTS, "profile.attention_kernel": "mine"}
_DECODE, _PREFILL = (f"{_SM}.attention.mine.{use}.bf16" for use in ("decode", "prefill"))
_ONE = {**ATTEND, "work.sizes.s": 1, "work.phases": ["forward"]}
_ROUTED = {"b": 2, "s": 128, "x": 8, "d": 60, "f": 64}
EXPERTS = {
    "profile.kernels": "fitted",
    "work.phases": ["forward"],
    "work.sizes": _ROUTED,
    "work.einsums": {"up": "Y[b,s,x,f] = X[b,s,x,d] * W[x,d,f]"},
    "work.tensors": {"X": {"density": 0.25}, "Y": {"density": 0.25}},
    f"{_SM}.grouped": {
        name: {
            **{"weights": "16 bit", "activations": "16 bit", "start": start, "rate": 0.5, "load": "0.1 GB/s", "step": "1 ns"},
            **{"memory": 0.5, "moving": 0.5, "unaligned": 0.5},
        }
        for name, start in (("mine bf16", "5 us"), ("other bf16", "50 us"))
    },
}
_MINE = f"{_SM}.grouped.mine bf16"
_HALF_ALIGNED = {"work.sizes": {**_ROUTED, "d": 56}, f"{_MINE}.unaligned": 0.1}  # 7 times 16 bytes, 3.5 times 16 elements
_L2 = "arch.tree.children.0.memory.capacity"
LASTING = FITTED | {"profile.kernels": "measured", "profile.products": "fitted"}
OF_EXPERTS = LASTING | {key: EXPERTS[key] for key in ("work.phases", "work.sizes", "work.einsums", "work.tensors")}
PACED = LASTING | {f"{_SM}.pace": {"products": 0.1, "alone": 0.01}}
MOVING = {
    "profile.kernels": "fitted",
    f"{_SM}.vector": {"gelu": {"start": "5 us", "load": "10 GB/s", "cache": "1 TB/s", "memory": 0.5}},
}
_GELU = f"{_SM}.vector.gelu"
_NINE = {f"{_SM}.busy": {"vector": {"power": "9 W"}}}
_BUSY = {**MOVING, f"{_SM}.busy": {"vector": {"power": "40 W", "moved": "40 pJ/byte"}}}
_CACHED = {**MOVING, "arch.tree.children.0.memory.capacity": "40 MB"}
_DIE = f"{_GPU}.embodied.dies.chip"
_SPARE = {f"{_DIE}.yield": {"model": "spare", "cores": 100, "needed": 90}}

_SUMMED = {"mapper.inside.rules": {"C": {"spatial": {"buffer": {"x": ["k"], "y": ["k"]}}}}}

TREES = {
    "Network.calls": Flip("overlapped", f"{_NET}.calls", "nvlink_h100", {"profile.collectives": {"library": "nccl"}}),
    "Architecture.accelerators": Flip("layers", "arch.accelerators", 4, {"mapper.axes.dp.degree": "rest"}),
    "Architecture.site": Flip("layers", "arch.site", DROP),
    "Architecture.tree": Flip("roofline", "arch.tree", {"name": "chip", "accelerator": True, "compute": {"rate": "20 GFLOP/s"}}),
    "Site.grid": Flip("layers", "arch.site.grid", "iceland"),
    "Site.pue": Flip("layers", "arch.site.pue", 1.5),
    "Site.intensity": Flip(
        "layers", "arch.site.intensity", "100 g/kWh", {"arch.site.grid": {"intensity": "200 g/kWh"}}, refused="site.intensity"
    ),
    "Level.count": Flip("layers", f"{_GPU}.count", 8),
    "Level.accelerator": Flip("layers", f"{_GPU}.accelerator", False, refused="tree"),
    "Level.memory": Flip("layers", f"{_GPU}.memory", {"capacity": "8 GB", "bandwidth": "0.1 TB/s"}),
    "Level.compute": Flip("layers", f"{_GPU}.compute", {"rate": "20 TFLOP/s"}),
    "Level.network": Flip("layers", _NET, {"topology": "ring", "bandwidth": "50 GB/s"}),
    "Level.fan": Flip("nest", f"{_BUFFER}.fan", {"linear": 16}),
    "Level.hosts": Flip("layers", "arch.tree.hosts", 4, {"arch.tree.static_power": "1 kW", "arch.tree.children.0.count": 4}),
    "Level.static_power": Flip("layers", f"{_GPU}.static_power", "60 W"),
    "Level.launching": Flip("overlapped", f"{_GPU}.launching", 3, {"profile.host.launch": "1 s"}),
    "Level.embodied": Flip("layers", f"{_STORE}.embodied", {"parts": {"box": {"kind": "server_chassis", "boundary": "host"}}}),
    "Level.children": Flip("layers", f"{_GPU}.children", [{"name": "die", "count": 20, "embodied": {"area": "10 mm^2"}}]),
    "Memory.capacity": Flip("layers", f"{_GPU}.memory.capacity", "16 GB"),
    "Memory.visible": Flip("layers", f"{_GPU}.memory.visible", 1.25, {f"{_GPU}.memory.capacity": "1 MB"}),
    "Memory.bandwidth": Flip("layers", f"{_GPU}.memory.bandwidth", "0.1 TB/s"),
    "Memory.ports": Flip("layers", f"{_GPU}.memory.ports", "split", {f"{_GPU}.memory.bandwidth": "10 GB/s"}),
    "Memory.write_bandwidth": Flip("layers", f"{_GPU}.memory.write_bandwidth", "10 GB/s", _SPLIT),
    "Memory.read_energy": Flip("layers", f"{_GPU}.memory.read_energy", "6 pJ/bit"),
    "Memory.write_energy": Flip("layers", f"{_GPU}.memory.write_energy", "6 pJ/bit"),
    "Memory.buffers": Flip("nest", f"{_CORE}.memory.buffers", 2),
    "Memory.keep": Flip("nest", f"{_CORE}.memory.keep", []),
    "Memory.bypass": Flip("nest", f"{_CORE}.memory.bypass", ["result"]),
    "Memory.bits": Flip("nest", f"{_CORE}.memory.bits", {"result": "32 bit"}),
    "Memory.enforce": Flip("layers", f"{_GPU}.memory.enforce", False, {f"{_GPU}.memory.capacity": "1 MB"}),
    "Memory.backing": Flip("layers", "arch.tree.memory.backing", True, {"arch.tree.memory": {"bandwidth": "1 GB/s"}}),
    "Compute.rate": Flip("layers", f"{_GPU}.compute.rate", "20 TFLOP/s"),
    "Compute.energy": Flip("layers", f"{_GPU}.compute.energy", "0.6 pJ/FLOP"),
    "Compute.atom": Flip("nest", f"{_CORE}.compute.atom", {"m": 4, "n": 4, "k": 4}),
    "Compute.precisions": Flip("layers", f"{_GPU}.compute.precisions", {"16 bit": {"rate": "20 TFLOP/s"}}),
    "Compute.vector": Flip("layers", f"{_GPU}.compute.vector", {"rate": "2 TFLOP/s"}),
    "Compute.sparse": Flip("layers", f"{_GPU}.compute.sparse", True, {"work.tensors": {"W1": {"density": 0.25}}}),
    "Compute.kernels": Flip("measured", _SM, DROP),
    "Atom.m": Flip("nest", f"{_CORE}.compute.atom.m", 2, _ATOM),
    "Atom.n": Flip("nest", f"{_CORE}.compute.atom.n", 2, _ATOM),
    "Atom.k": Flip("nest", f"{_CORE}.compute.atom.k", 2, _ATOM),
    "Rate.rate": Flip("layers", f"{_GPU}.compute.precisions.16 bit.rate", "20 TFLOP/s", _RATES),
    "Rate.energy": Flip("layers", f"{_GPU}.compute.precisions.16 bit.energy", "1 pJ/FLOP", _RATES),
    "Rate.atom": Flip("nest", f"{_CORE}.compute.precisions.16 bit.atom", {"m": 4, "n": 4, "k": 4}, _NEST_RATES),
    "Kernels.tiles": Flip("measured", f"{_SM}.tiles", [{"m": 16, "n": 16}]),
    "Kernels.efficiency": Flip("measured", f"{_SM}.efficiency", 0.5),
    "Kernels.k_fill": Flip("measured", f"{_SM}.k_fill", 100),
    "Kernels.sustained": Flip("measured", f"{_SM}.sustained", 0.5),
    "Kernels.memory_efficiency": Flip("measured", f"{_SM}.memory_efficiency", 0.01),
    "Kernels.stream_memory_efficiency": Flip("measured", f"{_SM}.stream_memory_efficiency", 0.01),
    "Kernels.pointwise_memory_efficiency": Flip("measured", f"{_SM}.pointwise_memory_efficiency", 0.01),
    "Kernels.batched_memory_efficiency": Flip("measured", f"{_SM}.batched_memory_efficiency", 0.01),
    "Kernels.vector_memory_efficiency": Flip("measured", f"{_SM}.vector_memory_efficiency", 0.5),
    "Kernels.start_in_stream": Flip("measured", f"{_SM}.start_in_stream", "3 us"),
    "Kernels.named": Flip("measured", f"{_SM}.named", {"attention forward": 0.1, "attention backward": 0.1}, _FLASH),
    "Kernels.attention": Flip("measured", f"{_SM}.attention", DROP, ATTEND),
    "Kernels.attention_kernel": Flip("measured", f"{_SM}.attention_kernel", "other", ATTEND),
    "AttentionKernel.decode": Flip("measured", f"{_SM}.attention.mine.decode", DROP, _ONE),
    "AttentionKernel.prefill": Flip("measured", f"{_SM}.attention.mine.prefill", DROP, ATTEND),
    "Kernels.latent_kernel": Flip("measured", f"{_SM}.latent_kernel", "other", ATTEND_UNLIKE),
    "AttentionKernel.latent": Flip("measured", f"{_SM}.attention.mine.latent", True, UNLIKE_NAMED),
    "AttentionKernel.backward": Flip("measured", f"{_SM}.attention.mine.backward", 0.3, ATTEND),
    "Kernels.training_kernel": Flip("measured", f"{_SM}.training_kernel", "other", TRAINED),
    "AttentionKernel.training": Flip("measured", f"{_SM}.attention.mine.training", DROP, NAMED_TO_TRAIN),
    "TrainingAttention.lasting": Flip("measured", f"{_SM}.attention.mine.training.bf16.lasting", 0.5, TRAINED),
    "TrainingAttention.forward": Flip("measured", f"{_SM}.attention.mine.training.bf16.forward", {**_CALL, "start": "50 us"}, TRAINED),
    "TrainingAttention.backward": Flip("measured", f"{_SM}.attention.mine.training.bf16.backward", {**_CALL, "start": "50 us"}, TRAINED),
    "DecodeAttention.start": Flip("measured", f"{_DECODE}.start", "9 us", _ONE),
    "DecodeAttention.memory": Flip("measured", f"{_DECODE}.memory", 1e-6, _ONE),
    "DecodeAttention.load": Flip("measured", f"{_DECODE}.load", "1 MB/s", _ONE),
    "DecodeAttention.block": Flip("measured", f"{_DECODE}.block", {"16": "9 us"}, _ONE),
    "DecodeAttention.step": Flip("measured", f"{_DECODE}.step", {"16": "1 ms"}, _ONE),
    "DecodeAttention.query": Flip("measured", f"{_DECODE}.query", 1e6, _ONE),
    "DecodeAttention.sequence": Flip("measured", f"{_DECODE}.sequence", "1 us", _ONE),
    "DecodeAttention.unscheduled": Flip("measured", f"{_DECODE}.unscheduled", 0.5, {**_ONE, "work.sizes.b": 1000}),
    "PrefillAttention.start": Flip("measured", f"{_PREFILL}.start", "9 us", ATTEND),
    "PrefillAttention.memory": Flip("measured", f"{_PREFILL}.memory", 1e-4, ATTEND),
    "PrefillAttention.window": Flip("measured", f"{_PREFILL}.window", "9 us", {**ATTEND, "work.tensors": {"A": {"density": 0.1}}}),
    "PrefillAttention.block": Flip("measured", f"{_PREFILL}.block", {"16": "9 us"}, ATTEND),
    "PrefillAttention.rate": Flip("measured", f"{_PREFILL}.rate", {"16": 0.05}, ATTEND),
    "PrefillAttention.rows": Flip("measured", f"{_PREFILL}.rows", 64, ATTEND),
    "PrefillAttention.tail": Flip("measured", f"{_PREFILL}.tail", 5, {**ATTEND, "work.sizes.b": 64}),
    "PrefillAttention.token": Flip("measured", f"{_PREFILL}.token", "1 us", ATTEND),
    "PrefillAttention.element": Flip("measured", f"{_PREFILL}.element", "1 ns", ATTEND),
    "Kernels.busy_power": Flip("measured", f"{_SM}.busy_power", "50 W"),
    "Kernels.busy": Flip("measured", f"{_SM}.busy", {"experts": {"power": "50 W"}}, EXPERTS),
    "BusyKinds.experts": Flip("measured", f"{_SM}.busy.experts", {"power": "50 W"}, EXPERTS | _NINE),
    "BusyKinds.decode": Flip("measured", f"{_SM}.busy.decode", {"power": "50 W"}, _ONE | _NINE),
    "BusyKinds.prefill": Flip("measured", f"{_SM}.busy.prefill", {"power": "50 W"}, ATTEND | _NINE),
    "BusyKinds.vector": Flip("measured", f"{_SM}.busy.vector", {"power": "50 W"}, _BUSY),
    "Busy.power": Flip("measured", f"{_SM}.busy.vector.power", "50 W", _BUSY),
    "Busy.moved": Flip("measured", f"{_SM}.busy.vector.moved", "50 pJ/byte", _BUSY),
    "Kernels.power_limit": Flip("measured", f"{_SM}.power_limit", "1 W"),
    "Kernels.power_cap": Flip("measured", f"{_SM}.power_cap", "1 W"),
    "Kernels.cap_exponent": Flip("measured", f"{_SM}.cap_exponent", 3, {f"{_SM}.power_cap": "1 W"}),
    "Kernels.products": Flip("measured", f"{_SM}.products", DROP, FITTED),
    "Products.operands": Flip("measured", f"{_16}.operands", "8 bit", FITTED),
    "Kernels.grouped": Flip("measured", f"{_SM}.grouped", DROP, EXPERTS),
    "Grouped.weights": Flip("measured", f"{_MINE}.weights", "8 bit", EXPERTS),
    "Grouped.activations": Flip("measured", f"{_MINE}.activations", "8 bit", EXPERTS),
    "Grouped.family": Flip("measured", f"{_MINE}.family", "fp8_block", EXPERTS),
    "Grouped.start": Flip("measured", f"{_MINE}.start", "9 us", EXPERTS),
    "Grouped.rate": Flip("measured", f"{_MINE}.rate", 1e-6, EXPERTS),
    "Grouped.load": Flip("measured", f"{_MINE}.load", "0.01 GB/s", EXPERTS),
    "Grouped.step": Flip("measured", f"{_MINE}.step", "1 ms", EXPERTS),
    "Grouped.memory": Flip("measured", f"{_MINE}.memory", 1e-4, EXPERTS),
    "Grouped.moving": Flip("measured", f"{_MINE}.moving", 1e-4, EXPERTS),
    "Grouped.cached": Flip("measured", f"{_MINE}.cached", 20, {**EXPERTS, f"{_MINE}.moving": 1e-4, _L2: "10 MB"}),
    "Grouped.unaligned": Flip("measured", f"{_MINE}.unaligned", 0.1, EXPERTS),
    "Grouped.aligned": Flip("measured", f"{_MINE}.aligned", "elements", {**EXPERTS, **_HALF_ALIGNED}),
    "Grouped.tuned": Flip("measured", f"{_MINE}.tuned", False, {**EXPERTS, "work.sizes": {**_ROUTED, "f": 32}}),
    "Grouped.laid_out": Flip("measured", f"{_MINE}.laid_out", 128, EXPERTS),
    "Kernels.vector": Flip("measured", f"{_SM}.vector", DROP, MOVING),
    "VectorKernel.start": Flip("measured", f"{_GELU}.start", "9 us", MOVING),
    "VectorKernel.load": Flip("measured", f"{_GELU}.load", "0.01 GB/s", MOVING),
    "VectorKernel.cache": Flip("measured", f"{_GELU}.cache", "0.01 TB/s", _CACHED),
    "VectorKernel.memory": Flip("measured", f"{_GELU}.memory", 0.01, MOVING),
    "VectorKernel.at_once": Flip("measured", f"{_GELU}.at_once", 1e9, MOVING),
    "VectorKernel.host": Flip("measured", f"{_GELU}.host", "1 ms", MOVING),
    "Products.start": Flip("measured", f"{_16}.start", "9 us", FITTED),
    "Products.rate": Flip("measured", f"{_16}.rate", 0.001, FITTED),
    "Products.load": Flip("measured", f"{_16}.load", "0.01 GB/s", FITTED),
    "Products.step": Flip("measured", f"{_16}.step", "1 ms", FITTED),
    "Products.block": Flip("measured", f"{_16}.block", "9 us", FITTED),
    "Products.latency": Flip("measured", f"{_16}.latency", "9 us", FITTED),
    "Products.memory": Flip("measured", f"{_16}.memory", 0.01, FITTED),
    "Products.split": Flip("measured", f"{_16}.split", "1 s", {**FITTED, "work.sizes.e": 2048}),
    "Products.dispatch": Flip("measured", f"{_16}.dispatch", "flashinfer_sm120", UNSPLIT),
    "Products.sustained": Flip("measured", f"{_16}.sustained", 1e-4, UNSPLIT),
    "Products.quantise": Flip("measured", f"{_16}.quantise", 100, FITTED),
    "Products.lasting": Flip("measured", f"{_16}.lasting", 0.01, LASTING),
    "Kernels.over_experts": Flip("measured", f"{_SM}.over_experts", 0.01, OF_EXPERTS),
    "Kernels.pace": Flip("measured", f"{_SM}.pace", {"products": 0.1, "alone": 0.01}, LASTING),
    "Pace.products": Flip("measured", f"{_SM}.pace.products", 0.2, PACED),
    "Pace.alone": Flip("measured", f"{_SM}.pace.alone", 0.02, PACED),
    "Tile.m": Flip("measured", f"{_SM}.tiles.0.m", 256, _TILES),
    "Tile.n": Flip("measured", f"{_SM}.tiles.0.n", 256, _TILES),
    "Tile.share": Flip("measured", f"{_SM}.tiles.0.share", 0.5, _TILES),
    "Network.topology": Flip("layers", f"{_NET}.topology", "switch", {**_FOUR, **_IN_NETWORK, f"{_NET}.topology": "ring"}),
    "Network.bandwidth": Flip("layers", f"{_NET}.bandwidth", "50 GB/s"),
    "Network.latency": Flip("layers", f"{_NET}.latency", "2 us"),
    "Network.energy": Flip("layers", f"{_NET}.energy", "2 pJ/bit"),
    "Network.hops": Flip("layers", "arch.tree.network.hops", "path_sum", _WIDE),
    "Network.links": Flip("layers", f"{_NET}.links", 2, {f"{_NET}.striped": True}),
    "Network.same_links": Flip("layers", "arch.tree.network.same_links", True, _EXCHANGED),
    "Network.pair_links": Flip(
        "layers", f"{_NET}.pair_links", 2, {f"{_NET}.striped": True, f"{_NET}.topology": "point_to_point", f"{_NET}.pair_links": 1}
    ),
    "Network.striped": Flip("layers", f"{_NET}.striped", True, {f"{_NET}.links": 2}),
    "Network.shape": Flip("layers", f"{_NET}.shape", [4, 1], {**_FOUR, f"{_NET}.topology": "mesh", f"{_NET}.shape": [2, 2]}),
    "Network.fanout": Flip("layers", f"{_NET}.fanout", 4, {**_FOUR, f"{_NET}.topology": "tree", f"{_NET}.fanout": 2}),
    "Network.oversubscription": Flip("layers", f"{_NET}.oversubscription", 4, {**_SWITCHED, "mapper.algorithms": "halving_doubling"}),
    "Network.multicast": Flip("layers", "arch.tree.network.multicast", True, _STREAMED),
    "Network.reduce": Flip("layers", "arch.tree.network.reduce", True, _STREAMED),
    "Network.add_energy": Flip("layers", "arch.tree.network.add_energy", "1 pJ/FLOP", _ADDING),
    "Network.start": Flip("layers", f"{_NET}.start", "5 us"),
    "Network.sustained": Flip("layers", f"{_NET}.sustained", 0.5),
    "Network.in_network_efficiency": Flip("layers", f"{_NET}.in_network_efficiency", 0.5, _IN_NETWORK),
    "Network.in_network_latency": Flip("layers", f"{_NET}.in_network_latency", "9 us", _IN_NETWORK),
    "Fan.x": Flip("nest", f"{_BUFFER}.fan.x", 8, refused="tree.buffer.fan"),
    "Fan.y": Flip("nest", f"{_BUFFER}.fan.y", 2, refused="tree.buffer.fan"),
    "Fan.linear": Flip("nest", f"{_BUFFER}.fan.linear", 16, {f"{_BUFFER}.fan": DROP}),
    "Fan.multicast_width": Flip("nest", f"{_BUFFER}.fan.multicast_width", 1),
    "Fan.reduction_width": Flip("nest", f"{_BUFFER}.fan.reduction_width", 1, _SUMMED),
    "Fan.hop_energy": Flip("nest", f"{_BUFFER}.fan.hop_energy", "1 pJ/bit"),
    "Fan.link_bandwidth": Flip("nest", f"{_BUFFER}.fan.link_bandwidth", "0.1 GB/s"),
}

EMBODIED = {
    "Embodied.area": Flip("layers", f"{_GPU}.children.0.embodied.area", "12 mm^2"),
    "Embodied.area_per_mac": Flip("layers", f"{_GPU}.children.0.embodied.area_per_mac", "2 mm^2"),
    "Embodied.macs": Flip("layers", f"{_GPU}.children.0.embodied.macs", 5),
    "Embodied.area_per_byte": Flip(
        "layers", f"{_GPU}.children.0.embodied.area_per_byte", "0.001 mm^2/B", {f"{_GPU}.children.0.memory": {"capacity": "1 KiB"}}
    ),
    "Embodied.dies": Flip("layers", f"{_GPU}.embodied.dies", {"open": {"process": "5nm"}}),
    "Embodied.memory": Flip("layers", f"{_GPU}.embodied.memory", {}),
    "Embodied.parts": Flip("layers", f"{_GPU}.embodied.parts", {}),
    "Embodied.packages": Flip("layers", f"{_GPU}.embodied.packages", 1),
    "Die.area": Flip("layers", f"{_DIE}.area", "700 mm^2"),
    "Die.process": Flip("layers", f"{_DIE}.process", "5nm"),
    "Die.count": Flip("layers", f"{_DIE}.count", 2),
    "Die.share": Flip("layers", f"{_DIE}.share", 0.5),
    "Die.yield": Flip("layers", f"{_DIE}.yield", {"model": "fixed", "value": 0.9}),
    "Die.dies_per_wafer": Flip("layers", f"{_DIE}.dies_per_wafer", 60),
    "Die.boundary": Flip("layers", f"{_DIE}.boundary", "package"),
    "Yield.model": Flip("layers", f"{_DIE}.yield.model", "murphy", {f"{_DIE}.yield": {"model": "poisson"}}),
    "Yield.value": Flip("layers", f"{_DIE}.yield.value", 0.9),
    "Yield.defects_per_cm2": Flip("layers", f"{_DIE}.yield.defects_per_cm2", 0.3, {f"{_DIE}.yield": {"model": "poisson"}}),
    "Yield.clustering": Flip("layers", f"{_DIE}.yield.clustering", 2, {f"{_DIE}.yield": {"model": "negative_binomial"}}),
    "Yield.cores": Flip("layers", f"{_DIE}.yield.cores", 95, _SPARE),
    "Yield.needed": Flip("layers", f"{_DIE}.yield.needed", 99, _SPARE),
    "Yield.core_share": Flip("layers", f"{_DIE}.yield.core_share", 0.5, _SPARE),
    "Chips.technology": Flip("layers", f"{_GPU}.embodied.memory.hbm.technology", "lpddr4"),
    "Chips.capacity": Flip("layers", f"{_GPU}.embodied.memory.hbm.capacity", "9 GB"),
    "Chips.boundary": Flip("layers", f"{_GPU}.embodied.memory.hbm.boundary", "host"),
    "Part.kind": Flip("layers", f"{_GPU}.embodied.parts.board.kind", "heat_sink"),
    "Part.carbon": Flip(
        "layers", f"{_GPU}.embodied.parts.board.carbon", "2 kg", {f"{_GPU}.embodied.parts.board": {"carbon": "1 kg", "boundary": "module"}}
    ),
    "Part.count": Flip("layers", f"{_GPU}.embodied.parts.board.count", 2),
    "Part.boundary": Flip("layers", f"{_GPU}.embodied.parts.board.boundary", "tray"),
}
