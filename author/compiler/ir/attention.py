"""Attention as one value: two products with elementwise work, and mostly a softmax, between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tritonsmith.author.compiler.ir.indices import Coordinates, Index, count, ravel, unravel, variable
from tritonsmith.author.compiler.ir.operators import Applied, Constant, Operand, Operator, Tree, iterate
from tritonsmith.author.compiler.ir.values import FLOATS, Formula, LibraryCall, Tensor, list_reads

LEAD, QUERY, KEY, FEATURE, COLUMN = "lead", "m", "n", "d", "c"
"""Variables: the head of a batch, the query, the key, the feature of query and key, the column of a value.
Of few queries the first is a group of heads, and the second a row of its tile."""
_MEMBER = "member"
"""The variable of a head within its group."""
_FEW_QUERIES, _MANY_KEYS = 16, 256
"""Queries of a head, at most, and keys, at least, of which reading keys and values takes the time."""
_GROUP_ROWS = 32
"""Rows of a tile up to which its products are instructions of a warp, which have their left operand in registers on every card."""
_WIDEST_FEW = 256
"""Features and columns that a program keeps, up to which few queries have a form of their own."""


@dataclass(eq=False, kw_only=True)
class ScoreTile(Tensor):
    """query @ key^T, which only the kernel of an attention has."""


@dataclass(eq=False, kw_only=True)
class Attention(Tensor):
    """weights @ value, with weights = softmax(score) along the keys, or the score itself.

    Leading axes of all tensors have the same number of elements: one for each head of a batch.
    The shape is that of the result in memory; `order` says which of its axes (*leads, queries, columns) stands where.
    """

    query: Tensor
    """[..., M, D]"""
    key: Tensor
    """[..., N, D]"""
    value: Tensor
    """[..., N, V]"""
    product: ScoreTile | LibraryCall
    """What stands for query @ key^T in the score."""
    score: Tensor
    """[..., M, N], an elementwise value of the product."""
    softmax: bool
    leads: tuple[int, ...]
    """Sizes of the leading axes of the result."""
    order: tuple[int, ...]
    causal: bool = False
    """Whether a query sees no key behind its own place; the score says so too."""
    hidden: Tensor | None = None
    """[..., M, N], the same for each head: where the weight is 0 for certain."""
    clear: Tensor | None = None
    """The score where nothing is hidden, and no later key: without the conditions that say so."""
    empty_is_zero: bool = False
    """Whether a query that sees no key gets zeros. Otherwise it gets NaN."""

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The values that it is made of."""
        return (self.query, self.key, self.value, *list_extras(self.score, self.product))

    @property
    def heads(self) -> int:
        """Heads of all batches."""
        return count(self.leads)

    @property
    def queries(self) -> int:
        """M."""
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        """N."""
        return self.key.shape[-2]

    @property
    def features(self) -> int:
        """D."""
        return self.query.shape[-1]

    @property
    def columns(self) -> int:
        """V."""
        return self.value.shape[-1]

    @cached_property
    def few(self) -> bool:
        """Whether its heads have so few queries that it is bound by reading keys and values."""
        streamed = self.queries <= _FEW_QUERIES and self.keys >= _MANY_KEYS
        return self.softmax and not self.causal and streamed and max(self.features, self.columns) <= _WIDEST_FEW

    @cached_property
    def group(self) -> int:
        """Neighbouring heads with the same keys and values whose few queries are the rows of one tile; 1 where queries are many."""
        most = _GROUP_ROWS // self.queries if self.few and self.leads else 1
        return next((size for size in range(most, 1, -1) if self.leads[-1] % size == 0 and self._shares_keys(size)), 1)

    def _shares_keys(self, size: int) -> bool:
        """Whether so many neighbouring heads read the same elements of keys and values."""
        lead = variable(LEAD, self.heads // size) * size + variable(_MEMBER, size)
        column = variable(COLUMN, max(self.features, self.columns))
        todo = [(one, (*unravel(lead, one.shape[:-2]), variable(KEY, self.keys), column)) for one in (self.key, self.value)]
        while todo:
            value, at = todo.pop()
            reads = list_reads(value, at)
            if any(_MEMBER in guard.names for read in reads for guard in read.guards):
                return False
            if not reads and _MEMBER in ravel(at, value.shape).names:
                return False
            todo += [(read.value, read.at) for read in reads]
        return True

    @property
    def tiles(self) -> int:
        """Heads, or groups of them, each of which is a tile of `rows`."""
        return self.heads // self.group if self.group > 1 else self.heads

    @property
    def rows(self) -> int:
        """Queries of a head, or of a group of heads."""
        return self.queries * self.group

    @property
    def row(self) -> Index:
        """A row of a tile. Of few queries it is a block of rows, of one query too."""
        return variable(QUERY, max(2, self.rows) if self.few else self.rows)

    @property
    def flops(self) -> float:
        """Of both products; half of them where later keys are never seen."""
        whole = 2.0 * self.heads * self.queries * self.keys * (self.features + self.columns)
        return whole / 2 if self.causal or self.hidden is not None else whole

    def find(self, tensor: Tensor, key: Index, column: Index) -> Coordinates:
        """Where keys or values have the element of a head, a key and a column."""
        lead = variable(LEAD, self.tiles)
        return (*unravel(lead * self.group if self.group > 1 else lead, tensor.shape[:-2]), key, column)

    def find_row(self, tensor: Tensor, column: Index) -> Coordinates:
        """Where the queries or the scores have the element of a row and a column."""
        return self._locate(self.row, column, tensor.shape[:-2])

    def place(self, row: Index, column: Index) -> Coordinates:
        """Where the result has an element."""
        plain = self._locate(row, column, self.leads)
        return tuple(plain[axis] for axis in self.order)

    def _locate(self, row: Index, column: Index, leads: tuple[int, ...]) -> Coordinates:
        lead = variable(LEAD, self.tiles)
        if self.group > 1:
            lead, row = lead * self.group + row // self.queries, row % self.queries
        return (*unravel(lead, leads), row, column)


def find_factor(score: Tensor, product: Tensor) -> float | None:
    """What a score is the product times, where it is nothing else and the number is positive."""
    if score is product:
        return 1.0
    match score:
        case Formula(inputs=(one,), expression=Applied(operator, (Operand(0), Constant(number)))) if one is product and number > 0:
            return float(number) if operator is Operator.MUL else 1.0 / number if operator is Operator.DIV else None
        case _:
            return None


_FAR = 1e4
"""A score so far from 0 keeps few digits behind the point."""


def can_be_far(score: Tensor, product: Tensor) -> bool:
    """Whether scores can be so far from 0, such as -1e9 where a mask hides, that a factor would round them much, or make them infinite."""
    extras = list_extras(score, product)
    todo, seen = [score], {id(product), *(id(one) for one in extras)}
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Formula) and any(map(_is_far, iterate(one.expression))):
            return True
        todo += one.operands
    return any(one.dtype in FLOATS for one in extras)


def _is_far(part: Tree) -> bool:
    return isinstance(part, Constant) and _FAR <= abs(part.value) < math.inf


def list_extras(score: Tensor, product: Tensor) -> list[Tensor]:
    """The largest values in a score that are not made of the product: masks, biases, factors."""
    known: dict[int, bool] = {}

    def contains(value: Tensor) -> bool:
        if id(value) not in known:
            known[id(value)] = value is product or (
                not isinstance(value, LibraryCall) and any([contains(one) for one in value.operands])
            )
        return known[id(value)]

    found: dict[int, Tensor] = {}
    todo = [score]
    while todo:
        one = todo.pop()
        if one is product:
            continue
        if contains(one):
            todo += one.operands
        else:
            found[id(one)] = one
    return list(found.values())
