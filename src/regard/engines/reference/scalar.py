"""Scalar reference: self-attention over lists of autograd `Value`s, without NumPy.

Every number is a node that stores its inputs and the local derivative with respect to each, so each weight, score and
gradient can be printed and traced. Matrices are lists of rows.

Masks are additive here: −inf + NaN is NaN, so a masked NaN is not excluded. `regard.engines.reference.attention`
excludes it.

    >>> x = Value(3.0)
    >>> y = x * x + 2 * x
    >>> y.backward()
    >>> y.data, x.grad
    (15.0, 8.0)
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ...common.errors import refuse


class Value:
    """A number, its children, and the local derivative with respect to each child; `grad` is filled by `backward`."""

    __slots__ = ("children", "data", "grad", "locals")

    def __init__(self, data: float, children: tuple[Value, ...] = (), locals: tuple[float, ...] = ()):
        self.data, self.children, self.locals, self.grad = float(data), children, locals, 0.0

    def __add__(self, other: Value | float) -> Value:
        other = value(other)
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other: Value | float) -> Value:
        other = value(other)
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def __pow__(self, exponent: float) -> Value:
        return Value(self.data**exponent, (self,), (exponent * self.data ** (exponent - 1),))

    def exp(self) -> Value:
        out = math.exp(self.data)
        return Value(out, (self,), (out,))

    def log(self) -> Value:
        return Value(math.log(self.data), (self,), (1 / self.data,))

    def tanh(self) -> Value:
        out = math.tanh(self.data)
        return Value(out, (self,), (1 - out * out,))

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Value | float) -> Value:
        return self + -value(other)

    def __rsub__(self, other: float) -> Value:
        return value(other) - self

    def __truediv__(self, other: Value | float) -> Value:
        return self * value(other) ** -1

    def __rtruediv__(self, other: float) -> Value:
        return value(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return f"Value({self.data:.6g})"

    def backward(self) -> None:
        """Add d self / d node to the `grad` of every node that self depends on (the chain rule, last node first)."""
        flowing = {id(self): 1.0}
        for node in reversed(self.history()):
            arrived = flowing[id(node)]
            node.grad += arrived
            for child, local in zip(node.children, node.locals, strict=True):
                flowing[id(child)] = flowing.get(id(child), 0.0) + arrived * local

    def history(self) -> list[Value]:
        """Every node that self depends on, children first; iterative, so the depth has no limit."""
        order: list[Value] = []
        entered: set[int] = set()
        stack = [(self, False)]
        while stack:
            node, children_done = stack.pop()
            if children_done:
                order.append(node)
            elif id(node) not in entered:
                entered.add(id(node))
                stack.append((node, True))
                stack.extend((child, False) for child in node.children)
        return order


Row = list[Value]
Matrix = list[Row]


def value(x: Value | float) -> Value:
    return x if isinstance(x, Value) else Value(x)


def dot(x: Sequence[Value | float], y: Sequence[Value | float]) -> Value:
    """Σ xᵢ yᵢ as a single node: the derivative with respect to xᵢ is yᵢ, and with respect to yᵢ it is xᵢ."""
    if len(x) != len(y):
        raise refuse(
            "dot",
            "the rows differ in length",
            f"{len(x)} and {len(y)} numbers",
            "rows of equal length",
            "check the depth of both matrices",
        )
    left, right = [value(a) for a in x], [value(b) for b in y]
    total = math.fsum(a.data * b.data for a, b in zip(left, right, strict=True))
    return Value(total, (*left, *right), (*(b.data for b in right), *(a.data for a in left)))


def matmul(x: Sequence[Sequence], y: Sequence[Sequence]) -> Matrix:
    """The matrix product: entry i, j is row i of x times column j of y."""
    columns = list(zip(*y, strict=True))
    return [[dot(row, column) for column in columns] for row in x]


def softmax(row: Sequence[Value | float]) -> Row:
    """exp(xᵢ − max x) / Σ exp(xⱼ − max x). Subtracting the maximum avoids overflow and does not change the result.

    The maximum is a plain number: shifting all entries has no effect, so it needs no gradient. A row of only −inf gives
    zeros.

    >>> softmax([1000.0, 1000.0])
    [Value(0.5), Value(0.5)]
    """
    entries = [value(x) for x in row]
    top = max((x.data for x in entries), default=-math.inf)
    if top == -math.inf:
        return [Value(0.0) for _ in entries]
    powers = [(x - top).exp() for x in entries]
    total = sum(powers, Value(0.0))
    return [power / total for power in powers]


def attention_scores(queries: Sequence[Sequence], keys: Sequence[Sequence], scale: float | None = None) -> Matrix:
    """scale · qᵢ · kⱼ, one row per query and one column per key; scale is 1/√D unless given."""
    if scale is None:
        scale = 1 / math.sqrt(len(queries[0])) if queries else 1.0
    return [[dot(query, key) * scale for key in keys] for query in queries]


def causal_mask(queries: int, keys: int) -> list[list[float]]:
    """The additive causal mask: 0 where key j is at or before query i, −inf after it. The last query is at the position
    of the last key.

    >>> causal_mask(2, 3)
    [[0.0, 0.0, -inf], [0.0, 0.0, 0.0]]
    """
    return [[0.0 if key <= row + keys - queries else -math.inf for key in range(keys)] for row in range(queries)]


def add(x: Sequence[Sequence], y: Sequence[Sequence]) -> Matrix:
    """The sum of two matrices, entry by entry: how a mask is applied to scores."""
    return [[value(a) + b for a, b in zip(left, right, strict=True)] for left, right in zip(x, y, strict=True)]


def dropout_factors(
    queries: int, keys: int, rate: float, seed: int, batch: int = 0, head: int = 0
) -> list[list[float]]:
    """The dropout factor of each weight: 0 for a fraction `rate` of them, 1 / (1 − rate) for the others.

    The random bits are Philox4x32-10 of the counter (key // 4, query, head, batch) and the seed: one of its four words
    for each of four keys.

    >>> dropout_factors(1, 8, rate=0.5, seed=4)
    [[0.0, 2.0, 2.0, 2.0, 0.0, 0.0, 2.0, 2.0]]
    """
    word = 2**32

    def number(query: int, key: int) -> int:
        a, b, c, d, low, high = key // 4, query % word, head, batch, seed % word, seed // word
        for _ in range(10):
            first, third = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = third // word ^ b ^ low, third % word, first // word ^ d ^ high, first % word
            low, high = (low + 0x9E3779B9) % word, (high + 0xBB67AE85) % word
        return (a, b, c, d)[key % 4]

    stays, kept = math.floor(rate * word), 1 / (1 - rate)
    return [
        [kept if number(row + keys - queries, key) >= stays else 0.0 for key in range(keys)] for row in range(queries)
    ]


def multiply(x: Sequence[Sequence], y: Sequence[Sequence]) -> Matrix:
    """The product of two matrices, entry by entry: how dropout is applied to weights."""
    return [[value(a) * b for a, b in zip(left, right, strict=True)] for left, right in zip(x, y, strict=True)]


def apply_attention(weights: Sequence[Sequence], values: Sequence[Sequence]) -> Matrix:
    """The weighted sum of the values for each row: Σⱼ weightᵢⱼ · vⱼ."""
    return matmul(weights, values)


class SelfAttention:
    """One head of self-attention: (softmax(X W_q (X W_k)ᵀ / √d_k + mask) ∘ factors) X W_v.

    X: rows of d_model numbers -> (Y: rows of d_v numbers, A: the weights, rows over keys). d_k is d_model and d_v is
    d_k unless given.

    >>> attend = SelfAttention(d_model=2, d_k=3, seed=0)
    >>> Y, A = attend([[1.0, 0.0], [0.0, 1.0]], causal_mask(2, 2))
    >>> A[0], len(Y[1]), len(attend.parameters())
    ([Value(1), Value(0)], 3, 18)
    """

    def __init__(self, d_model: int, d_k: int | None = None, d_v: int | None = None, seed: int = 0):
        d_k = d_model if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        draw, spread = random.Random(seed), 1 / math.sqrt(d_model)
        self.W_q, self.W_k, self.W_v = (
            [[Value(draw.gauss(0, spread)) for _ in range(width)] for _ in range(d_model)] for width in (d_k, d_k, d_v)
        )

    def __call__(
        self,
        X: Sequence[Sequence],
        mask: Sequence[Sequence[float]] | None = None,
        factors: Sequence[Sequence[float]] | None = None,
    ) -> tuple[Matrix, Matrix]:
        queries, keys, values = (matmul(X, weight) for weight in (self.W_q, self.W_k, self.W_v))
        scores = attention_scores(queries, keys)
        A = [softmax(row) for row in (scores if mask is None else add(scores, mask))]
        A = A if factors is None else multiply(A, factors)
        return apply_attention(A, values), A

    def parameters(self) -> list[Value]:
        """Every trainable number."""
        return [entry for weight in (self.W_q, self.W_k, self.W_v) for row in weight for entry in row]
