"""What a step of training runs, for `measure_torch`: a layer as Llama has it, and kernels that are neither products nor attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rackmodel.calibration.measured import VOCABULARY, Model

KINDS = {"attention": ("flash", "fmha", "attention", "sdpa"), "products": ("gemm", "cutlass", "nvjet", "xmma", "cublas", "splitkreduce")}
"""What names of kernels hold, in small letters, the first kind counts."""


class LlamaLayer:
    """Norm, projections, rotation, attention, norm, gated products, both sums: 16 bit, as torchtitan writes them, no dropout.
    model: (hidden, heads, shared heads, inside)."""

    def __init__(self, torch: Any, model: Model) -> None:
        hidden, heads, shared, inside = model
        self.torch, self.heads, self.shared, self.head = torch, heads, shared, hidden // heads
        wide = shared * self.head
        shapes: dict[str, tuple[int, ...]] = {"q": (hidden, hidden), "k": (wide, hidden), "v": (wide, hidden), "o": (hidden, hidden)}
        shapes |= {"gate": (inside, hidden), "up": (inside, hidden), "down": (hidden, inside), "first": (hidden,), "second": (hidden,)}
        made = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": True}
        self.weights = {name: torch.empty(shape, **made) for name, shape in shapes.items()}
        with torch.no_grad():
            for weight in self.weights.values():
                weight.normal_(0.0, 0.02)

    def __call__(self, ones: Any) -> Any:
        """[sequences, tokens, hidden] of both."""
        torch, weights = self.torch, self.weights
        linear, norm = torch.nn.functional.linear, torch.nn.functional.rms_norm
        sequences, tokens, hidden = ones.shape
        normed = norm(ones, (hidden,), weights["first"])
        q = linear(normed, weights["q"]).view(sequences, tokens, self.heads, self.head)
        k = linear(normed, weights["k"]).view(sequences, tokens, self.shared, self.head)
        v = linear(normed, weights["v"]).view(sequences, tokens, self.shared, self.head)
        angles = _angles(torch, tokens, self.head, ones.device)
        q, k = rotated(torch, q, angles), rotated(torch, k, angles)
        attend = torch.nn.functional.scaled_dot_product_attention
        out = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=self.heads != self.shared)
        ones = ones + linear(out.transpose(1, 2).reshape(sequences, tokens, hidden), weights["o"])
        normed = norm(ones, (hidden,), weights["second"])
        gated = torch.nn.functional.silu(linear(normed, weights["gate"])) * linear(normed, weights["up"])
        return ones + linear(gated, weights["down"])

    def forget(self) -> None:
        """The gradients."""
        for weight in self.weights.values():
            weight.grad = None


def _angles(torch: Any, tokens: int, head: int, device: Any) -> Any:
    return torch.ones(tokens, 1, head // 2, 2, device=device, dtype=torch.float32)


def rotated(torch: Any, rows: Any, angles: Any) -> Any:
    """Pairs of a head turned by angles, in 32 bit; a product of complex numbers, as torchtitan writes it, in real ones that compilers
    take."""
    pairs = rows.float().unflatten(-1, (-1, 2))
    turned = torch.stack(
        (
            pairs[..., 0] * angles[..., 0] - pairs[..., 1] * angles[..., 1],
            pairs[..., 0] * angles[..., 1] + pairs[..., 1] * angles[..., 0],
        ),
        -1,
    )
    return turned.flatten(-2).to(rows.dtype)


def step_op(torch: Any, op: str, tokens: int, width: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One of `measure.STEP_OPS` and its operands, 16 bit [tokens, width]; losses have as many rows as a vocabulary of VOCABULARY makes of
    tokens times width, optimizers tokens times width parameters of 32 bit in eight tensors."""
    make = torch.nn.functional

    def rows(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    if op.startswith("adamw"):
        whole = [torch.zeros(tokens * width // 8, device="cuda", requires_grad=True) for _ in range(8)]
        for one in whole:
            one.grad = torch.randn_like(one)
        optimizer = torch.optim.AdamW(whole, lr=1e-6, fused=op == "adamw", foreach=op != "adamw", capturable=True)
        return optimizer.step, ()
    if op == "cross_entropy":
        many = max(1, tokens * width // VOCABULARY)
        chosen = torch.randint(VOCABULARY, (many,), device="cuda")
        return lambda logits: make.cross_entropy(logits.float(), chosen), (rows(many, VOCABULARY),)

    def composite(ones: Any, scale: Any) -> Any:
        long = ones.float()
        return (long * torch.rsqrt(long.pow(2).mean(-1, keepdim=True) + 1e-5)).to(ones.dtype) * scale

    head = 128
    angles = _angles(torch, tokens, head, "cuda") if op == "rope" else None
    calls: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
        "rmsnorm": (lambda ones, scale: make.rms_norm(ones, (width,), scale), ((tokens, width), (width,))),
        "rmsnorm_composite": (composite, ((tokens, width), (width,))),
        "layernorm": (lambda ones, scale, shift: make.layer_norm(ones, (width,), scale, shift), ((tokens, width), (width,), (width,))),
        "rope": (lambda ones: rotated(torch, ones, angles), ((tokens, width // head, head),)),
        "swiglu": (lambda gate, up: make.silu(gate) * up, ((tokens, width), (tokens, width))),
        "gelu": (lambda ones: make.gelu(ones, approximate="tanh"), ((tokens, width),)),
        "add": (lambda one, two: one + two, ((tokens, width), (tokens, width))),
        "softmax": (lambda ones: torch.softmax(ones, -1), ((tokens, width),)),
    }
    call, shapes = calls[op]
    return call, tuple(rows(*shape) for shape in shapes)


def kinds(kernels: Iterable[Any]) -> list[tuple[float, int]]:
    """(seconds, kernels) of products, attention and others of what a profiler saw."""
    told = {"products": [0.0, 0], "attention": [0.0, 0], "others": [0.0, 0]}
    for one in kernels:
        name = one.key.lower()
        if not one.self_device_time_total:
            continue
        kind = "others"  # a compiler names its kernels by what they stand for
        if not name.startswith("triton"):
            kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words)), kind)
        told[kind][0] += one.self_device_time_total * 1e-6
        told[kind][1] += one.count
    return [(seconds, int(count)) for seconds, count in told.values()]
