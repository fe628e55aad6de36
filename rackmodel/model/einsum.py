"""The text of one operation: `Q[b,s,h] = X[b,s,d] * W[d,h]` or `P[b,s,t] = softmax(A[b,s,t]) over t`.

Text → Statement, nothing else. An index may be a sum with strides, `I[n,c,p+r,2*q+s]`: a sliding window.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from rackmodel.errors import InputError
from rackmodel.model.opkinds import KINDS
from rackmodel.model.sizes import short

Term = tuple[int, str]  # stride and index
Affine = tuple[Term, ...]


@dataclass(frozen=True)
class Access:
    """A tensor and, for each of its ranks, the index expression that walks it."""

    tensor: str
    indices: tuple[Affine, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every index used, in order."""
        return tuple(self._ranks)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Index → position of the first rank that it walks."""
        found: dict[str, int] = {}
        for position, affine in enumerate(self.indices):
            for _, index in affine:
                found.setdefault(index, position)
        return found

    def rank_of(self, index: str) -> int | None:
        """Position of the rank that `index` walks, or None."""
        return self._ranks.get(index)

    def __str__(self) -> str:
        def term(stride: int, index: str) -> str:
            return index if stride == 1 else f"{stride}*{index}"

        return f"{self.tensor}[{','.join('+'.join(term(*t) for t in affine) for affine in self.indices)}]"


@dataclass(frozen=True)
class Statement:
    """One parsed operation: out = kind(ins) over ranks."""

    kind: str
    out: Access
    ins: tuple[Access, ...]
    over: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "einsum":
            return f"{self.out} = {' * '.join(map(str, self.ins))}"
        tail = f" over {', '.join(self.over)}" if self.over else ""
        return f"{self.out} = {self.kind}({', '.join(map(str, self.ins))}){tail}"


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ACCESS = re.compile(rf"\s*({_NAME})\s*\[([^\[\]]*)\]\s*")
_CALL = re.compile(rf"^\s*({_NAME})\s*\((.*)\)\s*(?:over\s+(.+?))?\s*$", re.S)
_TERM = re.compile(rf"^\s*(?:([0-9]+)\s*\*\s*)?({_NAME})\s*$", re.A)
LARGEST_STRIDE = 2**31


@lru_cache(maxsize=4096)
def parse_statement(text: str) -> Statement:
    """Parse one operation. Raises InputError with the bare fact. Remembered: models of a file in many sizes are built of the same text."""
    left, equals, right = text.partition("=")
    if not equals:
        raise InputError(f"'{short(text)}' is not an operation: want 'Y[m,n] = X[m,k] * W[k,n]' or 'P[s,t] = softmax(A[s,t]) over t'")
    out = _single(left)
    call = _CALL.match(right)
    if call:
        kind, inside, over = call[1], call[2], call[3]
        if kind not in KINDS or kind == "einsum":
            raise InputError(f"unknown operation '{kind}'", known=[k for k in KINDS if k != "einsum"], given=kind)
        statement = Statement(kind, out, _accesses(inside, ","), tuple(w.strip() for w in over.split(",")) if over else ())
    else:
        statement = Statement("einsum", out, _accesses(right, "*"))
    _check(statement)
    return statement


def _check(statement: Statement) -> None:
    row = KINDS[statement.kind]
    low, high = row.operands
    if len(statement.ins) < low or (high is not None and len(statement.ins) > high):
        raise InputError(f"{row.name} takes {row.takes} operand{'' if high == 1 else 's'}, not {len(statement.ins)}")
    if any(len(affine) > 1 for affine in statement.out.indices):
        raise InputError(f"the output {statement.out} is written through a sum of indices")
    if len(set(statement.out.names)) != len(statement.out.indices):
        raise InputError(f"the output {statement.out} repeats an index")
    known = {index for access in statement.ins for index in access.names}
    for index in statement.out.names:
        if index not in known and not row.spreads:
            raise InputError(f"index '{index}' of the output {statement.out} is in no operand", known=sorted(known), given=index)
    for index in statement.over:
        if index not in known:
            raise InputError(f"'over {index}': no operand has that index", known=sorted(known), given=index)
    if row.statistics != (0, 0) and not statement.over:
        raise InputError(f"{row.name} needs the rank it normalises: '{row.name}(...) over {statement.out.names[-1]}'")
    if not row.inner:
        extra = known - set(statement.out.names) - set(statement.over)
        if extra:
            raise InputError(f"{row.name} does not sum: index '{sorted(extra)[0]}' is in an operand but not in the output")


def _single(text: str) -> Access:
    accesses = _accesses(text, "*")
    if len(accesses) != 1:
        raise InputError(f"'{short(text)}' must be one tensor, such as Y[m,n]")
    return accesses[0]


def _accesses(text: str, separator: str) -> tuple[Access, ...]:
    accesses, position = [], 0
    while True:
        match = _ACCESS.match(text, position)
        if not match:
            left = text[position:].strip()
            fact = f"'{short(left)}' is not a tensor access" if left else f"a tensor access is missing behind '{short(text.strip())}'"
            raise InputError(f"{fact}, such as X[b,s,d]")
        indices = tuple(_affine(part) for part in match[2].split(",")) if match[2].strip() else ()
        accesses.append(Access(match[1], indices))
        position = match.end()
        if position == len(text):
            return tuple(accesses)
        if text[position] != separator:
            hint = ": a sum is an operation of its own, such as Y[b,s,d] = add(D[b,s,d], X[b,s,d])" if text[position] == "+" else ""
            raise InputError(f"'{short(text[position:])}': want '{separator}' between operands{hint}")
        position += 1


def _affine(text: str) -> Affine:
    terms = []
    for part in text.split("+"):
        match = _TERM.match(part)
        if not match:
            raise InputError(f"'{short(text.strip())}' is not an index: want a name or a sum such as p+r or 2*p+r")
        written = match[1] or "1"
        if len(written) > 10 or not 1 <= int(written) <= LARGEST_STRIDE:
            raise InputError(f"'{short(text.strip())}': a stride is a whole number from 1 to {LARGEST_STRIDE}")
        terms.append((int(written), match[2]))
    return tuple(terms)
