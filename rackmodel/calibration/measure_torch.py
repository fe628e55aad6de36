"""What `measure` measures on: PyTorch on the first GPU, with watts from NVML where pynvml is installed.

An operation runs over and over for SPAN seconds, after a third of that unmeasured, so that the clock is the one that the power limit
leaves; values are normal, as zeros draw less (He 2024, thonking.ai).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from rackmodel.calibration.measure import VOCABULARY, KernelTime

SPAN = 0.4
SAMPLE = 0.02


class TorchBackend:
    """PyTorch on the first GPU. Raises ImportError without it, RuntimeError without a GPU."""

    def __init__(self) -> None:
        torch: Any = import_module("torch")  # not a dependency: its stubs are not there either
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        self.torch = torch
        self.device = torch.cuda.get_device_name(0)
        self.precisions: Sequence[str] = ("bfloat16",)
        self.kernel = "torch_sdpa"
        self.nvml = _nvml()

    def product(self, precision: str, m: int, n: int, k: int) -> KernelTime:
        """See `measure.Backend`."""
        kind = getattr(self.torch, precision)
        left, right = (self.torch.randn(shape, device="cuda", dtype=kind) for shape in ((m, k), (n, k)))
        return self._over_and_over(lambda: left @ right.t())

    def attention(self, sequences: int, tokens: int, heads: tuple[int, int, int]) -> tuple[KernelTime, KernelTime]:
        """See `measure.Backend`."""
        own, shared, head = heads
        call = self.torch.nn.functional.scaled_dot_product_attention
        made = [(sequences, count, tokens, head) for count in (own, shared, shared)]
        q, k, v = (self.torch.randn(shape, device="cuda", dtype=self.torch.bfloat16, requires_grad=True) for shape in made)
        forward = self._over_and_over(lambda: call(q, k, v, is_causal=True, enable_gqa=own != shared))
        out = call(q, k, v, is_causal=True, enable_gqa=own != shared)
        above = self.torch.randn_like(out)
        return forward, self._over_and_over(lambda: self.torch.autograd.grad(out, (q, k, v), above, retain_graph=True))

    def moving(self, op: str, tokens: int, model: tuple[int, int, int, int]) -> KernelTime:
        """See `measure.Backend`. Compiled, so that each is one kernel."""
        hidden, heads, shared, inside = model
        torch, half = self.torch, hidden // heads // 2
        one, two = (torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        gates = torch.randn(tokens, 2 * inside, device="cuda", dtype=torch.bfloat16)
        turned = torch.randn(tokens, heads + shared, 2 * half, device="cuda", dtype=torch.bfloat16)
        angles = torch.randn(tokens, 1, half, device="cuda", dtype=torch.bfloat16)
        table = torch.randn(VOCABULARY, hidden, device="cuda", dtype=torch.bfloat16)
        chosen = torch.randint(VOCABULARY, (tokens,), device="cuda")

        def rotated() -> Any:
            left, right = turned[..., :half], turned[..., half:]
            return torch.cat((left * angles - right * angles, right * angles + left * angles), -1)

        ops: dict[str, Callable[[], Any]] = {
            "add": lambda: one + two,
            "input_layernorm": lambda: torch.nn.functional.rms_norm(one, (hidden,), two[0]),
            "mlp_act": lambda: torch.nn.functional.silu(gates[:, :inside]) * gates[:, inside:],
            "attn_rope": rotated,
            "emb": lambda: table[chosen],
        }
        return self._over_and_over(torch.compile(ops[op]))

    def facts(self) -> Mapping[str, float]:
        """See `measure.Backend`."""
        torch = self.torch
        torch.cuda.synchronize()
        time.sleep(5)
        found = {} if self.nvml is None else {"idle_w": self._watts(), "limit_w": self.nvml.limit_w()}
        busy = self.product("bfloat16", 8192, 8192, 8192)
        if busy.watts is not None:
            found["busy_w"] = busy.watts
        small = torch.randn(1, 1, device="cuda")
        found["launch_s"] = self._host(lambda: small + small)
        layer = torch.nn.TransformerEncoderLayer(64, 1, 256, 0.0, batch_first=True, device="cuda", dtype=torch.bfloat16)
        ones = torch.randn(1, 16, 64, device="cuda", dtype=torch.bfloat16)
        found["layer_s"] = self._host(lambda: layer(ones).sum().backward())
        return found

    def _over_and_over(self, call: Callable[[], Any]) -> KernelTime:
        """Seconds of one of many, from events on the GPU, and the mean of what it draws in the second half."""
        torch = self.torch
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        times = max(5, int(SPAN / max((time.perf_counter() - start) / 3, 1e-6)))
        for _ in range(times // 3):
            call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            call()
        end.record()
        watts = []
        while not end.query():
            watts.append(self._watts() if self.nvml is not None else 0.0)
            time.sleep(SAMPLE)
        late = watts[len(watts) // 2 :]
        return KernelTime(begin.elapsed_time(end) * 1e-3 / times, sum(late) / len(late) if self.nvml is not None and late else None)

    def _host(self, call: Callable[[], Any], times: int = 200) -> float:
        """Seconds that the host takes to launch, the GPU's work shorter."""
        for _ in range(20):
            call()
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - start) / times

    def _watts(self) -> float:
        assert self.nvml is not None
        return self.nvml.watts()


class _Nvml:
    """The first GPU's power."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.nvmlInit()
        self.handle = library.nvmlDeviceGetHandleByIndex(0)

    def watts(self) -> float:
        """Drawn now."""
        return float(self.library.nvmlDeviceGetPowerUsage(self.handle)) * 1e-3

    def limit_w(self) -> float:
        """Most that it may draw."""
        return float(self.library.nvmlDeviceGetEnforcedPowerLimit(self.handle)) * 1e-3


def _nvml() -> _Nvml | None:
    try:
        return _Nvml(import_module("pynvml"))
    except ImportError:
        return None
