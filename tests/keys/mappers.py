"""Flips of the keys of mappers and profiles."""

from __future__ import annotations

from tests.keys.cases import DROP
from tests.keys.flip import Flip
from tests.keys.machines import ATTEND, EXPERTS, FITTED, MOVING

_OUT = {"work.einsums.O": "O[b,s,d] = Z[b,s,h,e] * WO[h,e,d]"}
_QUANTISED = {**ATTEND, **FITTED, **_OUT, "profile.merged.quantisation": ["bf16"]}
_ZERO = {"mapper.homes": {"weights": {"axes": ["dp"], "state": "shard"}}}
_STORE = {"mapper.homes": {"weights": {"at": "store"}}}
_OPEN = {"mapper.split.tp": "free", "mapper.axes": {"tp": {"degree": 8}}, "mapper.split": {"tp": "free"}, "mapper.minimize": "energy"}
_LAYOUT = {"mapper.layouts": {"one": {}}}
_RULES = {"mapper.inside.rules": {"C": {}}}
_FUSE = {"mapper.inside.fuse": [{"einsums": ["ONE", "TWO"]}]}
_MADE = {
    "work.einsums": {"PRE": "D[n,p] = F[n,q] * G[q,p]", "ONE": "C[m,n] = A[m,k] * B[k,n]", "TWO": "E[m,p] = C[m,n] * D[n,p]"},
    "work.sizes.q": 8,
}
_HOST = {"mapper.offload": [["optimizer"]]}
_LARGE = {"arch.tree.memory": {"capacity": "9 TB", "bandwidth": "5 GB/s"}}
_STAGES = {
    **_LARGE,
    "work.repeat": 1,
    "mapper.axes": {"pp": {"stages": [["FC1", "ACT"], ["FC2"]]}, "tp": {"degree": 4}},
    "mapper.split": {"tp": ["f"]},
}
_HANDED = {**_STAGES, "mapper.handover": {"A": {"at": "system"}}, "mapper.choose": {"FC2": {"tp": "none"}}}
_DP_SPLIT = {"mapper.axes": {"dp": {"degree": 8}}, "mapper.split": {"dp": ["b"]}}

MAPPERS = {
    "MapperSpec.axes": Flip("layers", "mapper.axes", {"dp": {"degree": 2}, "tp": {"degree": 4}}),
    "MapperSpec.split": Flip("layers", "mapper.split", {"dp": ["b"], "tp": ["d"]}),
    "MapperSpec.choose": Flip("layers", "mapper.choose", {"FC1": {"tp": "none"}}),
    "MapperSpec.boundary": Flip("graph", "mapper.boundary", {"X": {"tp": "d"}}),
    "MapperSpec.uneven": Flip(
        "layers", "mapper.uneven", "ceil", {"mapper.axes.tp.degree": "free", "mapper.axes.dp.degree": "rest", "work.sizes.f": 1020}
    ),
    "MapperSpec.homes": Flip("layers", "mapper.homes", _ZERO["mapper.homes"]),
    "MapperSpec.handover": Flip("graph", "mapper.handover", {"A": {"at": "system"}}, _STAGES),
    "HandoverSpec.at": Flip("graph", "mapper.handover.A.at", "rack", _HANDED, refused="handover.A.at"),
    "HandoverSpec.read": Flip("graph", "mapper.handover.A.read", "whole", _HANDED),
    "MapperSpec.save": Flip("layers", "mapper.save", "gathered", {"mapper.boundary": {"X": {"tp": "d"}}}),
    "MapperSpec.recompute": Flip("layers", "mapper.recompute", "full"),
    "MapperSpec.layouts": Flip("layers", "mapper.layouts", {"one": {}, "two": {"split": {"tp": ["d"]}}}),
    "MapperSpec.micro_batch": Flip("layers", "mapper.micro_batch", 1),
    "MapperSpec.schedule": Flip("piped", "mapper.schedule", "gpipe"),
    "MapperSpec.interleave": Flip("piped", "mapper.interleave", 2, {"mapper.schedule": "interleaved"}),
    "MapperSpec.cut": Flip("piped", "mapper.cut", "free"),
    "MapperSpec.overlap": Flip("overlapped", "mapper.overlap", "free"),
    "MapperSpec.algorithms": Flip("layers", "mapper.algorithms", "best"),
    "MapperSpec.offload": Flip("layers", "mapper.offload", [["optimizer"]]),
    "MapperSpec.host": Flip("layers", "mapper.host", "system", _HOST | _LARGE),
    "MapperSpec.rerun": Flip("layers", "mapper.rerun", "slice", {"mapper.recompute": "full"}),
    "MapperSpec.inside": Flip("roofline", "mapper.inside", {"model": "loopnest"}, {"mapper.profile": "serial"}),
    "MapperSpec.profile": Flip("layers", "mapper.profile", "ideal"),
    "MapperSpec.solver": Flip("layers", "mapper.solver", "cpsat", _OPEN | {"mapper.profile": "serial"}),
    "MapperSpec.minimize": Flip("layers", "mapper.minimize", "energy"),
    "AxisSpec.degree": Flip("layers", "mapper.axes.tp.degree", 4, {"mapper.axes.dp.degree": "rest"}),
    "AxisSpec.place": Flip("layers", "mapper.axes.tp.place", "outer"),
    "AxisSpec.stages": Flip("layers", "mapper.axes.dp.stages", "layers", {"mapper.split": {"tp": ["f"]}}),
    "HomeSpec.axes": Flip("layers", "mapper.homes.weights.axes", ["tp"], {**_ZERO, "mapper.split": {"dp": ["b"], "tp": ["s"]}}),
    "HomeSpec.param": Flip("layers", "mapper.homes.weights.param", "shard", {**_ZERO, "mapper.homes.weights.grad": "shard"}),
    "HomeSpec.grad": Flip("layers", "mapper.homes.weights.grad", "shard", _ZERO),
    "HomeSpec.state": Flip("layers", "mapper.homes.weights.state", "replicate", _ZERO),
    "HomeSpec.replicas": Flip("layers", "mapper.homes.weights.replicas", [], {**_ZERO, "mapper.split": {"dp": ["b"], "tp": ["b"]}}),
    "HomeSpec.at": Flip("layers", "mapper.homes.weights.at", "store", {"mapper.homes": {"weights": {}}, **_DP_SPLIT}),
    "LayoutSpec.split": Flip("layers", "mapper.layouts.one.split", {"tp": ["d"]}, _LAYOUT),
    "LayoutSpec.choose": Flip("layers", "mapper.layouts.one.choose", {"FC1": {"tp": "none"}}, _LAYOUT),
    "LayoutSpec.boundary": Flip("graph", "mapper.layouts.one.boundary", {"X": {"tp": "d"}}, _LAYOUT),
    "LayoutSpec.save": Flip("layers", "mapper.layouts.one.save", "gathered", {**_LAYOUT, "mapper.boundary": {"X": {"tp": "d"}}}),
    "InsideSpec.model": Flip("nest", "mapper.inside.model", "roofline", {"mapper.inside": {"model": "loopnest"}}),
    "InsideSpec.factors": Flip("nest", "mapper.inside.factors", "ceil"),
    "InsideSpec.solver": Flip("nest", "mapper.inside.solver", "cpsat", {"work.sizes": {"m": 4, "k": 4, "n": 4}}),
    "InsideSpec.rules": Flip("nest", "mapper.inside.rules", {"C": {"tiles": {"buffer": {"m": 2}}}}),
    "InsideSpec.fuse": Flip("chain", "mapper.inside.fuse", _FUSE["mapper.inside.fuse"]),
    "InsideSpec.home": Flip("wafer", "mapper.inside.home", ["activation"]),
    "NestRules.order": Flip("nest", "mapper.inside.rules.C.order", {"buffer": ["C", "A", "B"]}, _RULES),
    "NestRules.stationary": Flip("nest", "mapper.inside.rules.C.stationary", {"buffer": "C"}, _RULES),
    "NestRules.tiles": Flip("nest", "mapper.inside.rules.C.tiles", {"buffer": {"m": 2}}, _RULES),
    "NestRules.spatial": Flip("nest", "mapper.inside.rules.C.spatial", {"buffer": {"x": ["k"], "y": []}}, _RULES),
    "NestRules.keep": Flip(
        "nest", "mapper.inside.rules.C.keep", {"core": ["C"]}, {**_RULES, "arch.tree.children.0.children.0.memory.keep": []}
    ),
    "NestRules.bypass": Flip(
        "nest", "mapper.inside.rules.C.bypass", {"core": ["C"]}, {**_RULES, "arch.tree.children.0.children.0.memory.keep": []}
    ),
    "FuseSpec.einsums": Flip("chain", "mapper.inside.fuse.0.einsums", ["TWO", "ONE"], _FUSE, refused="inside.fuse.0.einsums"),
    "FuseSpec.resident": Flip("chain", "mapper.inside.fuse.0.resident", ["D"], {**_FUSE, **_MADE}),
    "FuseSpec.loops": Flip("chain", "mapper.inside.fuse.0.loops", "some", _FUSE, refused="inside.fuse.0.loops"),
}

_GATHERED = {"mapper.homes": {"weights": {"axes": ["dp"], "state": "shard", "grad": "shard", "param": "shard"}}, "mapper.recompute": "full"}
_BESIDE = {
    "mapper.boundary": {"X": {"tp": "d"}},
    "profile.overlap.windows": {"all_gather": {"beside": "reader"}},
}
_MANY = {"work.sizes.b": 64, "mapper.micro_batch": 1, "mapper.recompute": "full"}
_HEAD = {
    "work.sizes.v": 4096,
    "work.sections.head": {"einsums": {"logits": "L[b,s,v] = Y[b,s,d] * W[d,v]", "loss": "C[b,s] = cross_entropy(L[b,s,v]) over v"}},
}
_CALLS = {"arch.tree.children.0.network.start": "10 ms"}

_KNOWN = {"arch.tree.children.0.network.calls": "nvlink_h100", "profile.collectives": {"library": "vllm"}}
_SEVERAL = {"profile.composites": {"gelu": {"forward": {"kernels": 2, "bytes": 6}, "backward": {"bytes": 2}}}}
_STREAMING = {"arch.tree.children.0.children.0.compute.kernels.stream_memory_efficiency": 0.01}
_AROUND = {"profile.heads": {"forward": {"bytes": 64}}}
_RING = {
    "work.sections": DROP,
    "work.sizes": {"b": 2, "s": 128, "t": "s", "h": 4, "d": 64, "e": 16},
    "work.einsums": {
        "Q": "Q[b,s,h,e] = X[b,s,d] * WQ[d,h,e]",
        "K": "K[b,s,h,e] = X[b,s,d] * WK[d,h,e]",
        "QK": "A[b,h,s,t] = Q[b,s,h,e] * K[b,t,h,e]",
        "softmax": "P[b,h,s,t] = softmax(A[b,h,s,t]) over t",
        "AV": "Z[b,s,h,e] = P[b,h,s,t] * K[b,t,h,e]",
    },
    "mapper.axes": {"cp": {"degree": 8}},
    "mapper.split": {"cp": ["s"]},
    "profile.heads": {"ring": {"forward": 64, "backward": 64}},
}
_LOSS = {
    "work.sections": DROP,
    "work.sizes": {"b": 8, "s": 64, "d": 256, "v": 1024},
    "work.einsums": {"logits": "L[b,s,v] = X[b,s,d] * W[d,v]", "loss": "C[b,s] = cross_entropy(L[b,s,v]) over v"},
    "mapper.axes": {"tp": {"degree": 8}},
    "mapper.split": {"tp": ["v"]},
    "profile.composites": {"cross_entropy": {"backward": {"over_ranks": {"bytes": 64, "held": 64}}}},
}
_THIRD = {"mapper.recompute": "alternate", "work.einsums.third": "O[b,s,d] = R[b,s,h,e] * WO[h,e,d]"}
_CAST = {"profile.casts": {"16 bit": {"activation": 4, "weight": 4, "gradient": 4}}}

_ROTATED = {
    "work.einsums.first": "QR[b,s,h,e] = rope(Q[b,s,h,e])",
    "work.einsums.second": "KR[b,s,h,e] = rope(K[b,s,h,e])",
}
_CACHED = _ROTATED | {
    "profile.merged": {"rotations": True},
    "work.einsums.old": "AC[b,h,s,t] = QR[b,s,h,e] * KC[b,t,h,e]",
    "work.tensors.KC": {"kind": "kv_cache"},
}
_ROUTED = {
    "work.sizes.x": 4,
    "work.einsums.route": "L[b,s,x] = X[b,s,d] * WR[d,x]",
    "work.einsums.send": "D[b,s,x,d] = dispatch(X[b,s,d], L[b,s,x])",
    "work.tensors": {"L": {"density": 0.5}, "D": {"density": 0.5}},
}
_GATED = {
    "work.einsums.norm": "N[b,s,h,e] = rmsnorm(R[b,s,h,e]) over e",
    "work.einsums.act": "QS[b,s,h,e] = silu(Q[b,s,h,e])",
    "work.einsums.gated": "NG[b,s,h,e] = multiply(N[b,s,h,e], QS[b,s,h,e])",
}
_NORMALISED = {"work.einsums.norm": "N[b,s,h,e] = rmsnorm(R[b,s,h,e]) over e"}

PROFILES = {
    "ProfileSpec.collectives": Flip(
        "overlapped", "profile.collectives", {"library": "nccl"}, {"arch.tree.children.0.network.calls": "nvlink_h100"}
    ),
    "LibraryCall.library": Flip("overlapped", "profile.collectives.library", "trtllm", _KNOWN),
    "LibraryCall.release": Flip("overlapped", "profile.collectives.release", "0.14.0", _KNOWN),
    "LibraryCall.waits": Flip("overlapped", "profile.collectives.waits", "10 us", _KNOWN),
    "LibraryCall.mode": Flip("overlapped", "profile.collectives.mode", "eager", _KNOWN),
    "ProfileSpec.grouped": Flip("measured", "profile.grouped", "each", EXPERTS | {"profile.host": {"launch": "1 ms"}}),
    "ProfileSpec.experts": Flip("measured", "profile.experts", "other", EXPERTS),
    "ProfileSpec.products": Flip("measured", "profile.products", "fitted", FITTED | {"profile.kernels": "measured"}),
    "ProfileSpec.kernels": Flip("measured", "profile.kernels", "peak"),
    "ProfileSpec.attention_kernel": Flip("measured", "profile.attention_kernel", "other", ATTEND),
    "ProfileSpec.attention": Flip("measured", "profile.attention", "flash"),
    "ProfileSpec.pointwise": Flip("measured", "profile.pointwise", "fused"),
    "ProfileSpec.merged": Flip("measured", "profile.merged", {"projections": True}),
    "Merged.projections": Flip("measured", "profile.merged.projections", True),
    "Merged.apart": Flip("measured", "profile.merged.apart", ["K"], {"profile.merged": {"projections": True}}),
    "Merged.rotations": Flip("measured", "profile.merged.rotations", True, _ROTATED),
    "Merged.caches": Flip("measured", "profile.merged.caches", False, _CACHED),
    "Merged.experts": Flip("measured", "profile.merged.experts", True, _ROUTED),
    "Merged.gates": Flip("measured", "profile.merged.gates", True, _GATED),
    "Merged.residuals": Flip("measured", "profile.merged.residuals", True, _NORMALISED),
    "Merged.quantisation": Flip("measured", "profile.merged.quantisation", ["bf16"], FITTED),
    "Merged.attended": Flip("measured", "profile.merged.attended", False, _QUANTISED),
    "Merged.written": Flip("measured", "profile.merged.written", False, FITTED | {"profile.merged.quantisation": ["bf16"]}),
    "Merged.rows": Flip("measured", "profile.merged.rows", ["gelu"], MOVING),
    "ProfileSpec.overlap": Flip("overlapped", "profile.overlap", {"weights": False}),
    "ProfileSpec.buckets": Flip("overlapped", "profile.buckets", {"holds": "layer"}, _CALLS),
    "Buckets.holds": Flip("overlapped", "profile.buckets.holds", "stage", _CALLS),
    "Buckets.whole": Flip("overlapped", "profile.buckets.whole", 1e12, _CALLS),
    "Buckets.rank": Flip("overlapped", "profile.buckets.rank", "10 ms"),
    "ProfileSpec.reserved": Flip("overlapped", "profile.reserved", "1 TB"),
    "ProfileSpec.links": Flip("overlapped", "profile.links", 0.01),
    "Buckets.fill": Flip("overlapped", "profile.buckets.fill", "1 TB", _CALLS),
    "Buckets.fill_per_rank": Flip("overlapped", "profile.buckets.fill_per_rank", "1 TB", _CALLS),
    "Buckets.unpacked": Flip("overlapped", "profile.buckets.unpacked", 1000, _GATHERED),
    "Buckets.packed": Flip("overlapped", "profile.buckets.packed", 1000, _GATHERED),
    "ProfileSpec.unread": Flip("measured", "profile.unread", "dropped", _THIRD),
    "ProfileSpec.pipeline": Flip("overlapped", "profile.pipeline", {"outputs": "step"}),
    "PipelineKeeps.inputs": Flip("overlapped", "profile.pipeline.inputs", "step", _MANY),
    "PipelineKeeps.outputs": Flip("overlapped", "profile.pipeline.outputs", "flight"),
    "PipelineKeeps.gradients": Flip("overlapped", "profile.pipeline.gradients", {"received": "step"}),
    "GradientsKept.received": Flip("overlapped", "profile.pipeline.gradients.received", "step"),
    "GradientsKept.sent": Flip("overlapped", "profile.pipeline.gradients.sent", "step", _MANY),
    "PipelineKeeps.results": Flip("overlapped", "profile.pipeline.results", "step", _MANY | _HEAD),
    "ProfileSpec.updates": Flip("overlapped", "profile.updates", {"whole": 1000}),
    "Updates.whole": Flip("overlapped", "profile.updates.whole", 1000),
    "Updates.shard": Flip("overlapped", "profile.updates.shard", 1000),
    "ProfileSpec.host": Flip("overlapped", "profile.host", {"layer": "1 ms"}),
    "Overlap.weights": Flip("overlapped", "profile.overlap.weights", False, _GATHERED),
    "Overlap.ahead": Flip("overlapped", "profile.overlap.ahead", 1, _GATHERED),
    "Overlap.regather": Flip("overlapped", "profile.overlap.regather", True, {**_GATHERED, "mapper.recompute": "full"}),
    "Overlap.gradients": Flip("overlapped", "profile.overlap.gradients", False),
    "Overlap.channels": Flip(
        "overlapped",
        "profile.overlap.channels",
        "separate",
        {"mapper.homes": _GATHERED["mapper.homes"], "arch.tree.children.0.network.bandwidth": "10 GB/s"},
    ),
    "Overlap.sends": Flip("overlapped", "profile.overlap.sends", True),
    "Overlap.contention": Flip("overlapped", "profile.overlap.contention", 0.5),
    "Overlap.windows": Flip("overlapped", "profile.overlap.windows", {"all_reduce": {"beside": "maker"}}),
    "Window.beside": Flip("overlapped", "profile.overlap.windows.all_gather.beside", "none", _BESIDE),
    "Window.share": Flip("overlapped", "profile.overlap.windows.all_gather.share", 0.25, _BESIDE),
    "Host.layer": Flip("overlapped", "profile.host.layer", "1 ms"),
    "Host.backward": Flip("overlapped", "profile.host.backward", "1 ms"),
    "Host.hand_over": Flip("overlapped", "profile.host.hand_over", "1 ms"),
    "Host.expert": Flip("measured", "profile.host.expert", 3.0, EXPERTS | {"profile.host": {"launch": "1 ms"}, "profile.grouped": "each"}),
    "Host.launch": Flip("overlapped", "profile.host.launch", "1 ms"),
    "ProfileSpec.composites": Flip("measured", "profile.composites", {"gelu": {"forward": {"bytes": 64}}}),
    "Composite.forward": Flip("measured", "profile.composites.gelu.forward", {"bytes": 64}, _SEVERAL),
    "Composite.backward": Flip("measured", "profile.composites.gelu.backward", {"bytes": 64}, _SEVERAL),
    "KernelRun.kernels": Flip("measured", "profile.composites.gelu.forward.kernels", 9, _SEVERAL),
    "KernelRun.prompts": Flip("measured", "profile.composites.gelu.forward.prompts", 9, _SEVERAL | {"profile.host": {"launch": "1 ms"}}),
    "KernelRun.bytes": Flip("measured", "profile.composites.gelu.forward.bytes", 640, _SEVERAL),
    "KernelRun.streams": Flip("measured", "profile.composites.gelu.forward.streams", True, _SEVERAL | _STREAMING),
    "KernelRun.skipped": Flip("measured", "profile.composites.gelu.forward.skipped", 0.5, _SEVERAL),
    "ProfileSpec.heads": Flip("measured", "profile.heads", {"forward": {"bytes": 640}}),
    "Heads.forward": Flip("measured", "profile.heads.forward", {"bytes": 640}),
    "Heads.backward": Flip("measured", "profile.heads.backward", {"bytes": 640}),
    "Heads.ring": Flip("overlapped", "profile.heads.ring", {"forward": 6400}, _RING),
    "Ring.forward": Flip("overlapped", "profile.heads.ring.forward", 6400, _RING),
    "Ring.backward": Flip("overlapped", "profile.heads.ring.backward", 6400, _RING),
    "Moves.kernels": Flip("measured", "profile.heads.forward.kernels", 9, _AROUND),
    "Moves.bytes": Flip("measured", "profile.heads.forward.bytes", 640, _AROUND),
    "KernelRun.held": Flip("measured", "profile.composites.gelu.backward.held", 64000, _SEVERAL),
    "KernelRun.over_ranks": Flip("overlapped", "profile.composites.cross_entropy.backward.over_ranks", {"bytes": 640}, _LOSS),
    "OverRanks.bytes": Flip("overlapped", "profile.composites.cross_entropy.backward.over_ranks.bytes", 640, _LOSS),
    "OverRanks.held": Flip("overlapped", "profile.composites.cross_entropy.backward.over_ranks.held", 64000, _LOSS),
    "ProfileSpec.casts": Flip("measured", "profile.casts", {"16 bit": {"activation": 40}}),
    "Casts.activation": Flip("measured", "profile.casts.16 bit.activation", 400, _CAST),
    "Casts.weight": Flip("measured", "profile.casts.16 bit.weight", 400, _CAST),
    "Casts.fused": Flip("measured", "profile.casts.16 bit.fused", ["einsum"], _CAST),
    "Casts.gradient": Flip("measured", "profile.casts.16 bit.gradient", 400, _CAST),
    "Casts.kept": Flip("measured", "profile.casts.16 bit.kept", "32 bit", _CAST),
    "Casts.sent": Flip("stepped", "profile.casts.16 bit.sent", "32 bit", _CAST),
    "Casts.again": Flip("measured", "profile.casts.16 bit.again", 400, _CAST),
    "ProfileSpec.variation": Flip("overlapped", "profile.variation", 0.5),
    "ProfileSpec.accumulation": Flip("measured", "profile.accumulation", "separate"),
    "ProfileSpec.library": Flip("overlapped", "profile.library", 0.5),
    "ProfileSpec.hand_over": Flip("overlapped", "profile.hand_over", "scattered"),
}
