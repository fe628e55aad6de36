"""A pair of einsums to fuse: what makes it one, its shared ranks, and what each tensor counts and costs above X.

X is the output of the first and an operand of the second. Ranks are merged where no tensor of the whole pair tells them apart;
the shared ones are X's. A tensor above X is cut by loops over shared ranks alone: its private ranks are whole.
"""

from math import prod

from rackmodel.errors import RackmodelError
from rackmodel.nests.constraints import NestConstraints
from rackmodel.nests.objective import NestObjective
from rackmodel.nests.problem import NestMachine, NestProblem, NestTensor
from rackmodel.nests.searchers.contract import Feature, NestQuestion, features, refusal
from rackmodel.nests.searchers.divisor_axis import DivisorAxis
from rackmodel.nests.searchers.prices import energy_prices
from rackmodel.nests.searchers.stored_tensors import keep_masks
from rackmodel.nests.searchers.word_terms import Tally, TensorTerm, tally_prices

SUPPORTS = frozenset(
    {Feature.PERFECT, Feature.RESIDENT, Feature.COMPUTE_FAN, Feature.DEEP, Feature.LINEAR, Feature.WIDTH, Feature.HOPS, Feature.MANY}
)


class FusedPair:
    """The pair on a machine.

    einsums: the two · x: X's name · groups: per einsum, merged rank → its parts · shared: X's merged ranks, with `sizes` and
    `axes` · tensors: every other tensor and the number of its einsum · terms: counts over the shared ranks · prices: (joules
    a word that enters level 1, joules of fresh words) · held: bits of the residents.
    Errors: RackmodelError if the two cannot be fused, naming why.
    """

    def __init__(self, first: NestProblem, second: NestProblem, machine: NestMachine, resident: frozenset[str]) -> None:
        self.einsums, self.machine, self.resident = (first, second), machine, resident
        self.x = first.output.name
        self._check()
        self.groups = self._groups()
        self.level = machine.levels[1]
        self.shared = [g for g, parts in self.groups[0].items() if parts[0] in first.output.ranks]
        self.sizes = {g: prod(first.sizes[r] for r in self.groups[0][g]) for g in self.shared}
        self.axes = [DivisorAxis(self.sizes[g]) for g in self.shared]
        self.tensors = {t.name: (t, i) for i, p in enumerate(self.einsums) for t in p.tensors if t.name != self.x}
        held = [self.tensors[n] for n in resident]
        self.held = sum(self._word(t) * t.tile_words(self.einsums[i].sizes) for t, i in held)
        self.terms = {n: self._term(n) for n in (*self.tensors, self.x)}
        self.prices = {n: self._price(n) for n in self.tensors}

    def _check(self) -> None:
        first, second = self.einsums
        names = [{t.name for t in p.tensors} for p in self.einsums]
        x = next((t for t in second.tensors if t.name == self.x), None)
        if x is None or x.is_output or names[0] & names[1] != {self.x}:
            raise RackmodelError(
                f"{first.name}, {second.name}: to fuse, the output {self.x} of the first must be an "
                "input of the second, and their only common tensor"
            )
        if x.indices != first.output.indices or any(first.sizes[r] != second.sizes[r] for r in x.ranks):
            raise RackmodelError(f"{self.x}: both einsums must index it alike, with equal sizes")
        if (set(first.sizes) & set(second.sizes)) - set(x.ranks):
            raise RackmodelError(f"{first.name}, {second.name}: they share a rank that {self.x} lacks")
        if self.resident - (names[0] | names[1]) or self.x in self.resident:
            raise RackmodelError(f"resident {sorted(self.resident)}: expected tensors of the pair other than {self.x}")
        for p in self.einsums:
            masks = keep_masks(p, self.machine, NestConstraints())
            question = NestQuestion(p, self.machine, NestObjective("energy"), "perfect", NestConstraints(), masks, self.resident)
            if not features(question) <= SUPPORTS:
                raise refusal(question, [SUPPORTS], "fused: ")

    def _groups(self) -> list[dict[str, list[str]]]:
        """Merged ranks of both einsums: ranks that index the same tensors of the whole pair."""
        every = [(t.name, t.ranks) for p in self.einsums for t in p.tensors]
        found = []
        for p in self.einsums:
            groups: dict[tuple[str, ...], list[str]] = {}
            for r in p.sizes:
                groups.setdefault(tuple(dict.fromkeys(n for n, ranks in every if r in ranks)), []).append(r)
            found.append({"__".join(sorted(g)): sorted(g) for g in groups.values()})
        return found

    def has(self, name: str) -> list[bool]:
        """Which shared ranks a tensor has."""
        t = self._tensor(name)
        return [self.groups[0][g][0] in t.ranks for g in self.shared]

    def _tensor(self, name: str) -> NestTensor:
        return self.einsums[0].output if name == self.x else self.tensors[name][0]

    def width(self, name: str) -> int:
        """Bits of level 1 for a word of the tensor's shared tile (its private ranks are whole)."""
        i = 0 if name == self.x else self.tensors[name][1]
        tensor, x = self._tensor(name), self.einsums[0].output
        private = prod(self.einsums[i].sizes[r] for r in tensor.ranks if r not in x.ranks)
        return private * self._word(tensor)

    def _term(self, name: str) -> TensorTerm:
        i = 0 if name == self.x else self.tensors[name][1]
        return TensorTerm.of(float(self._tensor(name).tile_words(self.einsums[i].sizes)), self.has(name))

    def _price(self, name: str) -> tuple[float, float]:
        """(joules a word that enters level 1, joules of fresh words, <= 0) of a prefix tensor."""
        words = tally_prices(self.machine, energy_prices(self.machine), self._tensor(name), 0, 1).words
        each, fresh = (Tally.ENTERED, Tally.SERVED), (Tally.FRESH_CHILD, Tally.FRESH_PARENT)  # one instance of level 1
        saved = sum(words.get(tally, 0.0) for tally in fresh)
        return sum(words.get(tally, 0.0) for tally in each), saved * self.terms[name].whole

    def least_bits(self) -> float:
        """Bits of level 1 that any fused mapping takes: residents, a word of X, a word of each other tensor of one einsum."""
        words = [sum(self._word(t) for t, n in self.tensors.values() if n == i and t.name not in self.resident) for i in (0, 1)]
        return self.held + self._word(self._tensor(self.x)) + max(words)

    def _word(self, tensor: NestTensor) -> int:
        return self.level.buffers * self.level.bits(tensor)
