"""What `measure` measures on: PyTorch on the first GPU, with watts and clocks from NVML where pynvml is installed.

An operation is captured as a graph of calls, so that the host is not timed with small ones, and runs over and over for SPAN seconds (LONG
where it is large), after a third of that unmeasured, so that the clock is the one that the power limit leaves; values are normal, as
zeros draw less (He 2024, thonking.ai).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from rackmodel.calibration.measure_step import LlamaLayer, kinds, step_op
from rackmodel.calibration.measured import VOCABULARY, CannotError, KernelTime, Model

SPAN, LONG = 0.1, 0.6
"""Seconds: of an operation, and of one that takes LARGE and more, whose watts rise for a while."""
LARGE = 1e-4
GRAPH = 2e-3
"""Seconds of a graph of calls at least, beside which its launch is little."""
MOST_CALLS = 200
WAITING = 1e-3
"""Seconds between kernels of a GPU that waits for its host."""
COPIED, BLOCK = 1 << 27, 4096
"""Words of 32 bit that are copied beside products, and those that a block moves at once."""
STEPS = 8
"""Passes of a layer whose kernels are told apart."""
SAMPLE = 0.02
METER = 1.0
"""Seconds of which NVML's call tells the mean, where it cannot tell the power of now."""
REST = 5.0
INSTANT = 186
"""NVML's field of the power of now (NVML_FI_DEV_POWER_INSTANT); the call's is a mean of the last second."""
PRECISIONS = {"bfloat16": "bfloat16", "fp8": "float8_e4m3fn"}
KERNELS = {"torch_flash_attention_2": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
"""Word of files → PyTorch's."""


class TorchBackend:
    """PyTorch on the first GPU. Raises ImportError without it, RuntimeError without a GPU."""

    def __init__(self) -> None:
        torch: Any = import_module("torch")  # not a dependency: its stubs are not there either
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        self.torch = torch
        self.device = torch.cuda.get_device_name(0)
        low = torch.cuda.get_device_capability(0) >= (8, 9)
        self.precisions: Sequence[str] = ("bfloat16", "fp8") if low else ("bfloat16",)
        self.kernels: Sequence[str] = tuple(KERNELS)
        self.nvml = _nvml()
        self.compiled: tuple[object, Any] = (None, None)
        self.stream = torch.cuda.Stream()  # a graph can be captured of what ran on its own stream alone, backward passes too

    def fact(self, name: str) -> float | None:
        """See `measure.Backend`."""
        facts: dict[str, Callable[[], float | None]] = {
            "idle_w": self._idle,
            "limit_w": lambda: None if self.nvml is None else self.nvml.limit_w(),
            "waiting_w": self._waiting,
            "busy_w": lambda: self._large(self._random).watts,
            "busy_zeros_w": lambda: self._large(self._zeros).watts,
            "launch_s": self._launch,
            "layer_s": self._layer,
        }
        with self._able():
            return facts[name]()

    def product(self, precision: str, m: int, n: int, k: int) -> KernelTime:
        """See `measure.Backend`. fp8 has one scale a tensor."""
        with self._able():
            kind = getattr(self.torch, PRECISIONS[precision])
            left, right = self._random(m, k).to(kind), self._random(n, k).to(kind).t()
            if precision != "fp8":
                return self._over_and_over(lambda: left @ right)
            scale = self.torch.ones((), device="cuda", dtype=self.torch.float32)
            call = partial(self.torch._scaled_mm, scale_a=scale, scale_b=scale, out_dtype=self.torch.bfloat16)
            return self._over_and_over(lambda: call(left, right))

    def attention(self, kernel: str, way: str, sequences: int, tokens: int, heads: tuple[int, int, int]) -> KernelTime:
        """See `measure.Backend`."""
        own, shared, head = heads
        chosen = import_module("torch.nn.attention")
        with self._able(), chosen.sdpa_kernel(getattr(chosen.SDPBackend, KERNELS[kernel])):
            q, k, v = (self._random(sequences, count, tokens, head).requires_grad_(way == "backward") for count in (own, shared, shared))
            call = partial(self.torch.nn.functional.scaled_dot_product_attention, is_causal=True, enable_gqa=own != shared)
            if way == "forward":
                return self._over_and_over(lambda: call(q, k, v))
            out = call(q, k, v)
            above = self.torch.randn_like(out)
            return self._over_and_over(lambda: self.torch.autograd.grad(out, (q, k, v), above, retain_graph=True))

    def moving(self, op: str, tokens: int, model: Model) -> KernelTime:
        """See `measure.Backend`. Compiled, so that each is one kernel."""
        hidden, heads, shared, inside = model
        head = hidden // heads
        with self._able():
            made: dict[str, Callable[[], tuple[Any, ...]]] = {
                "add": lambda: (self._rows(tokens, hidden), self._rows(tokens, hidden)),
                "input_layernorm": lambda: (self._rows(tokens, hidden), self._random(hidden)),
                "mlp_act": lambda: (self._rows(tokens, 2 * inside),),
                "attn_rope": lambda: (self._rows(tokens, heads + shared, head), self._rows(tokens, 1, head // 2)),
                "emb": lambda: (self._random(VOCABULARY, hidden), self._chosen(tokens)),
            }
            operands = made[op]()
            if self.compiled[0] != (op, model):  # PyTorch compiles a function a few times, then no more
                self.torch._dynamo.reset()
                self.compiled = (op, model), self.torch.compile(_moving(self.torch)[op], fullgraph=True)
            call = self.compiled[1]
            return self._over_and_over(lambda: call(*operands))

    def training_product(self, way: str, m: int, n: int, k: int) -> KernelTime:
        """See `measure.Backend`."""
        with self._able():
            weight, tokens, above = self._random(n, k), self._random(m, k), self._random(m, n)
            calls: dict[str, Callable[[], Any]] = {
                "forward": lambda: tokens @ weight.t(),
                "input gradients": lambda: above @ weight,
                "weight gradients": lambda: above.t() @ tokens,
            }
            return self._over_and_over(calls[way])

    def training_op(self, op: str, way: str, mode: str, tokens: int, width: int) -> KernelTime:
        """See `measure.Backend`."""
        with self._able():
            call, operands = step_op(self.torch, op, tokens, width)
            if mode == "compiled":
                if self.compiled[0] != (op, tokens, width):
                    self.torch._dynamo.reset()
                    self.compiled = (op, tokens, width), (self.torch.compile(call, fullgraph=True), operands)
                call, operands = self.compiled[1]
            if op.startswith("adamw"):
                return self._over_and_over(lambda: call(*operands))
            if way == "forward":
                return self._over_and_over(lambda: call(*operands).detach())
            out = call(*operands)
            above, wanted = self.torch.randn_like(out), [one for one in operands if one.requires_grad]
            return self._over_and_over(lambda: self.torch.autograd.grad(out, wanted, above, retain_graph=True))

    def layer(self, kernel: str, mode: str, model: Model, sequences: int, tokens: int) -> Sequence[KernelTime]:
        """See `measure.Backend`. Whole and in parts by the profiler, amid the same steps."""
        chosen, torch = import_module("torch.nn.attention"), self.torch
        with self._able(), chosen.sdpa_kernel(getattr(chosen.SDPBackend, KERNELS[kernel])):
            torch._dynamo.reset()
            made = LlamaLayer(torch, model)
            call = torch.compile(made, fullgraph=True) if mode == "compiled" else made

            def step(ones: Any, above: Any) -> None:
                call(ones).backward(above)
                made.forget()

            ones, above = (self._random(sequences, tokens, model[0]).requires_grad_(way) for way in (True, False))
            whole = self._repeated(lambda: step(ones, above))
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                for _ in range(STEPS):
                    step(ones, above)
                torch.cuda.synchronize()
            names = seen.key_averages()
            if mode == "compiled" and any("cudnn" in one.key for one in names) != (kernel == "cudnn"):
                raise RuntimeError("a compiled layer has an attention kernel of the compiler's choice")
            told = kinds(names)
            host = KernelTime(self._enqueued(lambda: step(ones, above)))
        parts = [KernelTime(seconds / STEPS, kernels=round(count / STEPS)) for seconds, count in told]
        return [KernelTime(whole.seconds, whole.watts, whole.clock_hz, sum(part.kernels or 0 for part in parts)), *parts, host]

    def copied(self, way: str, size: int) -> KernelTime:
        """See `measure.Backend`. The host's memory is pinned."""
        with self._able():
            here = self.torch.empty(size, device="cuda", dtype=self.torch.uint8)
            if way == "device":
                other = self.torch.empty_like(here)
                return self._over_and_over(lambda: other.copy_(here))
            there = self.torch.empty(size, dtype=self.torch.uint8, pin_memory=True)
            to, source = (here, there) if way == "from host" else (there, here)
            return self._repeated(lambda: to.copy_(source, non_blocking=True))

    def contended(self, blocks: int, m: int, n: int, k: int) -> KernelTime:
        """See `measure.Backend`. The copies begin first and end last."""
        torch = self.torch
        with self._able():
            left, right = self._random(m, k), self._random(n, k).t()
            many, calls = self._captured(lambda: left @ right)
            beside, outlasted = torch.cuda.Stream(), torch.cuda.Event()
            if blocks:
                copied = import_module("rackmodel.calibration.measure_copying").copied[(blocks,)]
                places = [torch.zeros(COPIED, device="cuda", dtype=torch.int32) for _ in range(2)]
                copy = partial(copied, *places, COPIED, BLOCK=BLOCK, num_warps=16)
                copy(1)
                torch.cuda.synchronize()
                start = time.perf_counter()
                copy(1)
                torch.cuda.synchronize()
                rounds = max(1, int(4 * SPAN / (time.perf_counter() - start)))
                with torch.cuda.stream(beside):
                    copy(rounds)
                    outlasted.record()
                time.sleep(0.1 * SPAN)
            many()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            times = max(1, int(SPAN / GRAPH))
            for _ in range(times):
                many()
            end.record()
            end.synchronize()
            if blocks and outlasted.query():
                raise RuntimeError("the copies ended before the products")
            torch.cuda.synchronize()
            return KernelTime(begin.elapsed_time(end) * 1e-3 / times / calls)

    @contextmanager
    def _able(self) -> Iterator[None]:
        """What PyTorch refuses, or has no memory for, is CannotError, whatever it raises: what else there is goes on."""
        try:
            with self.torch.cuda.stream(self.stream):
                yield
        except Exception as problem:
            raise CannotError(str(problem).strip().split("\n", 1)[0] or type(problem).__name__) from problem
        finally:
            self.torch.cuda.empty_cache()

    def _random(self, *shape: int) -> Any:
        return self.torch.randn(shape, device="cuda", dtype=self.torch.bfloat16)

    def _zeros(self, *shape: int) -> Any:
        return self.torch.zeros(shape, device="cuda", dtype=self.torch.bfloat16)

    def _rows(self, tokens: int, *shape: int) -> Any:
        return self._any_many(self._random(tokens, *shape))

    def _chosen(self, tokens: int) -> Any:
        return self._any_many(self.torch.randint(VOCABULARY, (tokens,), device="cuda"))

    def _any_many(self, operand: Any) -> Any:
        """Compiled once for any number of tokens but one."""
        if operand.shape[0] > 1:
            self.torch._dynamo.mark_dynamic(operand, 0)
        return operand

    def _large(self, make: Callable[..., Any]) -> KernelTime:
        left, right = make(8192, 8192), make(8192, 8192)
        return self._over_and_over(lambda: left @ right)

    def _idle(self) -> float | None:
        if self.nvml is None:
            return None
        self.torch.cuda.synchronize()
        time.sleep(REST)
        return self.nvml.watts()

    def _waiting(self) -> float | None:
        """Drawn while a small kernel runs now and then, the clock up."""
        if self.nvml is None:
            return None
        small, seen = self._random(1, 1), []
        self._large(self._random)
        time.sleep(LONG)
        begin = time.perf_counter()
        while time.perf_counter() - begin < LONG:
            for _ in range(int(SAMPLE / WAITING)):
                small.add_(1)
                time.sleep(WAITING)
            seen.append(self.nvml.watts())
        late = seen[len(seen) // 2 :]
        return sum(late) / len(late)

    def _launch(self) -> float:
        small = self._random(1, 1)
        return self._host(lambda: small + small)

    def _layer(self) -> float:
        layer = self.torch.nn.TransformerEncoderLayer(64, 1, 256, 0.0, batch_first=True, device="cuda", dtype=self.torch.bfloat16)
        ones = self._random(1, 16, 64)
        return self._host(lambda: layer(ones).sum().backward())

    def _over_and_over(self, call: Callable[[], Any]) -> KernelTime:
        """Seconds of one of many, from events on the GPU, and the mean of watts and clocks in the second half."""
        for _ in range(3):
            call()
        return self._timed(*self._captured(call))

    def _repeated(self, call: Callable[[], Any]) -> KernelTime:
        """The same of what is launched call by call."""
        for _ in range(3):
            call()
        return self._timed(call, 1)

    def _timed(self, many: Callable[[], Any], calls: int) -> KernelTime:
        torch = self.torch
        torch.cuda.synchronize()
        start = time.perf_counter()
        many()
        torch.cuda.synchronize()
        each = max(time.perf_counter() - start, 1e-6)
        times = max(3, int((LONG if each / calls >= LARGE else SPAN) / each))
        for _ in range(times // 3):
            many()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        seen: list[tuple[float, float]] = []
        late = time.perf_counter() + SAMPLE
        begin.record()
        for _ in range(times):
            many()
            if self.nvml is not None and time.perf_counter() > late:
                seen.append((self.nvml.watts(), self.nvml.clock_hz()))
                late = time.perf_counter() + SAMPLE
        end.record()
        while not end.query():
            seen += [] if self.nvml is None else [(self.nvml.watts(), self.nvml.clock_hz())]
            time.sleep(SAMPLE)
        span, second = begin.elapsed_time(end) * 1e-3, seen[len(seen) // 2 :]
        if not second or (self.nvml is not None and not self.nvml.instant and span < METER):
            return KernelTime(span / times / calls)
        watts, clocks = (sum(one) / len(second) for one in zip(*second, strict=True))
        return KernelTime(span / times / calls, watts, clocks)

    def _captured(self, call: Callable[[], Any]) -> tuple[Callable[[], Any], int]:
        """A graph of calls that takes GRAPH, and how many they are."""
        torch = self.torch
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        calls = max(1, min(MOST_CALLS, int(GRAPH / max((time.perf_counter() - start) / 3, 1e-6))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(calls):
                call()
        return graph.replay, calls

    def _enqueued(self, call: Callable[[], Any]) -> float:
        """Seconds that the host takes for a call of many kernels, nothing before it: the median of ten."""
        spans = []
        for _ in range(10):
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            spans.append(time.perf_counter() - start)
        return sorted(spans)[len(spans) // 2]

    def _host(self, call: Callable[[], Any], times: int = 200) -> float:
        """Seconds that the host takes to launch, the GPU's work shorter."""
        for _ in range(20):
            call()
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - start) / times


def _moving(torch: Any) -> dict[str, Callable[..., Any]]:
    """What each of `measure.MOVING` does with its operands."""

    def gated(gates: Any) -> Any:
        first, second = gates.chunk(2, -1)
        return torch.nn.functional.silu(first) * second

    def rotated(rows: Any, angles: Any) -> Any:
        left, right = rows.chunk(2, -1)
        return torch.cat((left * angles - right * angles, right * angles + left * angles), -1)

    return {
        "add": lambda one, two: one + two,
        "input_layernorm": lambda rows, scale: torch.nn.functional.rms_norm(rows, scale.shape, scale),
        "mlp_act": gated,
        "attn_rope": rotated,
        "emb": lambda table, chosen: table[chosen],
    }


class _Nvml:
    """The first GPU's power and clock."""

    def __init__(self, library: Any) -> None:
        self.library = library
        library.nvmlInit()
        self.handle = library.nvmlDeviceGetHandleByIndex(0)
        self.instant = self._instant() is not None

    def watts(self) -> float:
        """Drawn now; where it cannot tell, on average over the last second."""
        now = self._instant() if self.instant else None
        return float(self.library.nvmlDeviceGetPowerUsage(self.handle) if now is None else now) * 1e-3

    def limit_w(self) -> float:
        """Most that it may draw."""
        return float(self.library.nvmlDeviceGetEnforcedPowerLimit(self.handle)) * 1e-3

    def clock_hz(self) -> float:
        """Of its multiprocessors, now."""
        return float(self.library.nvmlDeviceGetClockInfo(self.handle, self.library.NVML_CLOCK_SM)) * 1e6

    def _instant(self) -> int | None:
        try:
            (found,) = self.library.nvmlDeviceGetFieldValues(self.handle, [INSTANT])
        except (AttributeError, ValueError, self.library.NVMLError):
            return None
        return int(found.value.uiVal) if found.nvmlReturn == 0 else None


def _nvml() -> _Nvml | None:
    try:
        library = import_module("pynvml")
    except ImportError:
        return None
    try:
        return _Nvml(library)
    except library.NVMLError:
        return None
