"""Orders of schedules whose stages hold two chunks, one down the stages and one back up (stage i of p: virtual stages i, 2p - 1 - i).

Rules of their authors' code, stage by stage (0-based), F, B, W of chunk 0 or 1, each the next micro-batch of its kind and chunk:

    zb_v        2(p-i) - 1 F0 · i x (F1 F0) · (p-i) x (F1 B1 W1) · (F0) B0 W0 F1 B1 W1 until all forwards ran · i x (B0 B1) ·
                (p-i) x (B0, the next W0) · the W1 that are left · the W0 that are left             Qi 2023, PyTorch ScheduleZBVZeroBubble
    dualpipe_v  2(p-i-1) F0 · (i+1) x (F0 F1) · (p-i-1) x (B1 W1 F1) · (m-2p+i+1) x ([F0 D1] [F1 D0]) · (p-i-1) x (D1 [F1 D0]) ·
                (i+1) x (D1 D0), the later half B for D · (p-i-1) x (the next W, B0) · the W that are left      DeepSeek 2025, DualPipe

D is a backward pass whole, with its weight gradients. [F D] run as one: they start when what both take is there, and what both make
leaves when both are done. DualPipe proper, of 2p stages in two directions with two copies of the weights, is dualpipe_v of p stages, twice
beside each other: stages i and 2p - 1 - i of it run the same order, each for half of the micro-batches (Qi 2025, "cut in half").
"""

from __future__ import annotations

from collections.abc import Iterator

KINDS = FORWARD, BACKWARD, WEIGHT, WHOLE, AWAIT, RELEASE = (0, 1, 2, 3, 4, 5)
"""WHOLE: a backward pass with its weight gradients · AWAIT, RELEASE: no passes: what the backward pass of a pair takes is there, and what
the forward pass of it made leaves."""
Entry = tuple[int, int, int]  # kind, chunk, micro-batch


class _Stage:
    """Entries so far of a stage that counts the passes of each chunk."""

    def __init__(self) -> None:
        self.found: list[Entry] = []
        self.next = {kind: [0, 0] for kind in (FORWARD, BACKWARD, WEIGHT)}
        self.left: list[tuple[int, int]] = []  # chunk, micro-batch of weight gradients to come

    def forward(self, chunk: int) -> None:
        self.found.append((FORWARD, chunk, self._count(FORWARD, chunk)))

    def backward(self, chunk: int, *, whole: bool = False) -> None:
        batch = self._count(BACKWARD, chunk)
        self.found.append((WHOLE if whole else BACKWARD, chunk, batch))
        if not whole:
            self.left.append((chunk, batch))

    def weight(self, chunk: int | None = None) -> None:
        """The oldest that is left, or of a chunk."""
        one = self.left[0] if chunk is None else next(left for left in self.left if left[0] == chunk)
        self.left.remove(one)
        self.found.append((WEIGHT, *one))

    def pair(self, forward: int, backward: int) -> None:
        ahead, back = self.next[FORWARD][forward], self.next[BACKWARD][backward]
        self.found.append((AWAIT, backward, back))
        self.forward(forward)
        self.backward(backward, whole=True)
        self.found.append((RELEASE, forward, ahead))

    def _count(self, kind: int, chunk: int) -> int:
        self.next[kind][chunk] += 1
        return self.next[kind][chunk] - 1


def folded_order(schedule: str, stages: int, micro_batches: int) -> list[list[Entry]]:
    """The entries of every stage, each as many: behind its last one a stage waits for what has long been there."""
    rule = {"zb_v": _zb_v, "dualpipe_v": _dualpipe_v}[schedule]
    found = [list(rule(stages, stage, micro_batches)) for stage in range(stages)]
    longest = max(map(len, found))
    return [one + [(AWAIT, 0, 0)] * (longest - len(one)) for one in found]


def _zb_v(p: int, i: int, m: int) -> Iterator[Entry]:
    stage, count = _Stage(), max(2 * p - 1, m)
    ran = stage.next[FORWARD]
    for _ in range(2 * (p - i) - 1):
        stage.forward(0)
    for _ in range(i):
        stage.forward(1)
        stage.forward(0)
    for _ in range(p - i):
        stage.forward(1)
        stage.backward(1)
        stage.weight()
    while ran[1] < count:
        if ran[0] < count:
            stage.forward(0)
        stage.backward(0)
        stage.weight()
        stage.forward(1)
        stage.backward(1)
        stage.weight()
    for _ in range(i):
        stage.backward(0)
        stage.backward(1)
    for _ in range(p - i):
        stage.backward(0)
        stage.weight(0)
    for chunk in (1, 0):
        for _ in range(sum(left[0] == chunk for left in stage.left)):
            stage.weight(chunk)
    return (entry for entry in stage.found if entry[2] < m)  # (of fewer than fill it, those that there are)


def _dualpipe_v(p: int, i: int, m: int) -> Iterator[Entry]:
    stage = _Stage()
    for _ in range(2 * (p - i - 1)):
        stage.forward(0)
    for _ in range(i + 1):
        stage.forward(0)
        stage.forward(1)
    for _ in range(p - i - 1):
        stage.backward(1)
        stage.weight()
        stage.forward(1)
    for number in range(m - 2 * p + i + 1):
        if number == 0 and i == p - 1:  # these two are not run as one: the stage where it turns sends the first at once
            stage.forward(0)
            stage.backward(1, whole=True)
        else:
            stage.pair(0, 1)
        stage.pair(1, 0)
    for _ in range(p - i - 1):
        stage.backward(1, whole=True)
        stage.pair(1, 0)
    half = (i + 1) // 2
    for number in range(i + 1):
        stage.backward(1, whole=number < half + (1 - i % 2))
        stage.backward(0, whole=number < half)
    for _ in range(p - i - 1):
        stage.weight()
        stage.backward(0)
    while stage.left:
        stage.weight()
    return iter(stage.found)
