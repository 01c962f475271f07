"""Engine "tiles": attention and its gradients by torch operations, one tile of query rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.autograd.function import once_differentiable

from ...common.errors import refuse
from ...language.analysis import adjoints
from ...language.dropout import MULTIPLIERS, ROUNDS, STEPS, Dropout
from ...language.expr import Read, Table
from ...language.expr import score as the_score
from ..plan import plan
from .device_call import DeviceCall, capturing
from .lowering import lower, mask_of, score_of, whole_of

ROWS, KEYS = 256, 256  # of a tile of the plan
WIDE = 2048  # keys of a run per step
ROOM = 1 << 26  # scores in memory at a time, unless a single row has more

INFINITY = float("inf")
WORD = 0xFFFFFFFF


class Rules:
    """The rules of a call as functions of tensors: mask and score (None where there is none)."""

    def __init__(self, call: DeviceCall):
        if capturing(call.q.device):
            # The CPU decides which tiles are visited, and whether values are finite.
            raise refuse(
                "attention",
                "torch operations in tiles cannot be captured in a CUDA graph",
                "a call, statistics or weights that are computed in tiles",
                "a call that SDPA or FlexAttention computes",
                'make it outside the graph; engine="flex" and engine="sdpa" say whether they support it',
            )
        self.call = call
        self.whole = whole_of(call.problem)
        self.mask = mask_of(call.problem, call.tables, self.whole)
        self.score = score_of(call.problem, call.tables, call.real, self.whole)
        self.start = torch.tensor(call.problem.query_start, device=call.q.device)


Part: TypeAlias = "slice | torch.Tensor"  # of rows or keys: a span, or a list of positions


def positions(part: Part, device: torch.device) -> torch.Tensor:
    return torch.arange(part.start, part.stop, device=device) if isinstance(part, slice) else part


class Rows(NamedTuple):
    """A block of rows of some batch entries and heads; groups: the key/value heads that they read, each shared by
    `copies` query heads.
    """

    batch: slice
    heads: slice
    groups: slice
    copies: int
    rows: Part

    @property
    def place(self) -> tuple:
        """Their index in (B, H, Q, …)."""
        return self.batch, self.heads, self.rows

    def of(self, tensor: torch.Tensor, call: DeviceCall) -> torch.Tensor:
        """Their part of a (B, H, Q, …) tensor, in the dtype of sums."""
        return tensor[self.batch, self.heads][:, :, self.rows].to(call.real)

    def per_head(self, tensor: torch.Tensor, keys: Part, call: DeviceCall) -> torch.Tensor:
        """Keys or values as each query head reads them, (B, H, N, …), in the dtype of sums."""
        return tensor[self.batch, self.groups][:, :, keys].to(call.real).repeat_interleave(self.copies, 1)


class Block(NamedTuple):
    """Scores of some rows over some keys (B, H, R, N), −inf where masked; and the variables of the rules."""

    s: torch.Tensor
    variables: tuple[torch.Tensor, ...]

    @property
    def allowed(self) -> torch.Tensor:
        return self.s != -INFINITY


def block(rules: Rules, rows: Rows, keys: Part, mixed: bool = True) -> Block:
    """The scores of these rows over these keys; the mask is evaluated only if the tile is mixed."""
    call, device = rules.call, rules.call.q.device
    B, H = call.q.shape[:2]
    batch = torch.arange(B, device=device)[rows.batch, None, None, None]
    head = torch.arange(H, device=device)[rows.heads, None, None]
    query = rules.start[rows.batch, None, None, None] + positions(rows.rows, device)[:, None]
    logit = call.problem.scale * rows.of(call.q, call) @ rows.per_head(call.k, keys, call).mT
    variables = (logit, batch, head, query, positions(keys, device))
    s = logit if rules.score is None else rules.score(*variables).expand(logit.shape)
    if mixed and rules.mask is not None:
        s = torch.where(rules.mask(*variables[1:]), s, -INFINITY)
    return Block(s, variables)


def rows_at_once(call: DeviceCall, keys: int) -> int:
    """How many rows fit in memory with their scores over `keys` keys: a power of two."""
    B, H = call.q.shape[:2]
    most = max(ROOM // max(B * H * keys, 1), 1)
    return min(1 << (most.bit_length() - 1), ROWS)


def tiles(call: DeviceCall, keys: int = 0) -> Iterator[tuple[Rows, list[tuple[slice, bool]]]]:
    """Each tile of query rows, and the keys that it visits by the Plan: (keys, mixed), in ascending order.

    keys: how many keys of a tile's scores the caller has in memory at a time, by default WIDE.
    """
    H, Q, G = call.q.shape[1], call.q.shape[2], call.k.shape[1]
    height = rows_at_once(call, keys or WIDE)
    found = plan(call.problem, height, KEYS)
    count = found.order.shape[1]
    for group in range(found.groups):
        b, h = divmod(group, H if found.per_head else 1)
        batch = slice(b, b + 1) if found.per_batch else slice(None)
        heads = slice(h, h + 1) if found.per_head else slice(None)
        groups, copies = (slice(h * G // H, h * G // H + 1), 1) if found.per_head else (slice(None), H // max(G, 1))
        for tile in range(count):
            begin, end = found.offsets[[group * count + tile, group * count + tile + 1]]
            parts = [
                (slice(left, min(left + WIDE, last)), bool(mixed))
                for first, last, mixed in found.runs[begin:end].tolist()
                for left in range(first, last, WIDE)
            ]
            yield Rows(batch, heads, groups, copies, slice(tile * height, min((tile + 1) * height, Q))), parts


class Denominator(NamedTuple):
    """Σ exp(s) = total · exp(top), in two parts, to avoid overflow and loss of precision."""

    top: torch.Tensor
    total: torch.Tensor

    @property
    def lse(self) -> torch.Tensor:
        return some_number(self.top) + torch.log(self.total)

    def joined(self, other: Denominator) -> Denominator:
        top = torch.maximum(self.top, other.top)
        own, its = (part.total * torch.exp(part.top - some_number(top)) for part in (self, other))
        return Denominator(top, own + its)


def denominator(s: torch.Tensor) -> Denominator:
    """Σ exp(s) over the last axis, which must not be empty."""
    top = s.amax(-1)
    return Denominator(top, torch.exp(s - some_number(top)[..., None]).sum(-1))


def with_sinks(call: DeviceCall, rows: Rows, below: Denominator) -> Denominator:
    """The denominator including the sinks."""
    if call.sinks is None or not call.sinks.shape[1]:
        return below
    top, total = denominator(call.sinks[rows.heads].to(call.real))
    return below.joined(Denominator(top[:, None].expand(below.top.shape), total[:, None].expand(below.total.shape)))


def summed(rules: Rules, rows: Rows, parts: list[tuple[slice, bool]]) -> Denominator:
    """The denominators of these rows, including the sinks."""
    call = rules.call
    zero = torch.zeros(rows.of(call.q, call).shape[:3], dtype=call.real, device=call.q.device)
    below = Denominator(zero - INFINITY, zero)
    for keys, mixed in parts:
        below = below.joined(denominator(block(rules, rows, keys, mixed).s))
    return with_sinks(call, rows, below)


def shares(s: torch.Tensor, below: Denominator) -> torch.Tensor:
    """exp(s) / Σ exp(s), and 0 for a masked key, whatever the denominator is."""
    return torch.where(s == -INFINITY, 0, torch.exp(s - some_number(below.top)[..., None]) / below.total[..., None])


def left_over(rules: Rules, variables: tuple) -> torch.Tensor | float:
    """The dropout factors of the weights."""
    dropout = rules.call.problem.dropout
    return 1.0 if dropout is None else dropout_factors(dropout, rules.call.real, *variables[1:])


def dropout_factors(dropout: Dropout, real: torch.dtype, batch, head, query, key) -> torch.Tensor:
    """The dropout factors of these pairs, 0 or 1 / (1 - rate), as `regard.language.dropout` draws them; the positions
    broadcast, batch and head from 0.

    Words are stored as int64: the product of two wraps around and is bit-identical to the unsigned product.

    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> dropout_factors(Dropout(0.5, seed=5), torch.float32, zero, zero, zero, torch.arange(8)).tolist()
    [2.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 0.0]
    """
    four = torch.div(key, 4, rounding_mode="floor")
    head, batch = head.to(torch.int64) + dropout.head_start, batch.to(torch.int64) + dropout.batch_start
    a, b, c, d = (word.to(torch.int64) & WORD for word in (four, query, head, batch))
    for number in range(ROUNDS):
        halves = zip((dropout.seed & WORD, dropout.seed >> 32), STEPS, strict=True)
        low, high = ((half + number * step) & WORD for half, step in halves)
        first, third = (word * by for word, by in zip((a, c), MULTIPLIERS, strict=True))
        a, b, c, d = ((third >> 32) & WORD) ^ b ^ low, third & WORD, ((first >> 32) & WORD) ^ d ^ high, first & WORD
    place = torch.remainder(key, 4)
    numbers = torch.where(place < 2, torch.where(place == 0, a, b), torch.where(place == 2, c, d))
    return (numbers >= dropout.threshold).to(real) * dropout.scale


def some_number(top: torch.Tensor) -> torch.Tensor:
    """A maximum that can be subtracted: −inf, the maximum of an empty set, becomes 0."""
    return torch.where(top == -INFINITY, 0, top)


class Sum:
    """Σ p · x over blocks of x; infinities and NaN in x reach only the rows that attend to them (law 6)."""

    def __init__(self, shape, call: DeviceCall, spoiled: bool):
        self.plain = torch.zeros(shape, dtype=call.real, device=call.q.device)
        self.marks = torch.zeros_like(self.plain) if spoiled else None

    def add(self, place: Any, p: torch.Tensor, allowed: torch.Tensor, x: torch.Tensor, copies: int = 1) -> None:
        """found[place] += p @ x, summed over the query heads that share a key head."""
        if self.marks is None:
            self.plain[place] += _shared(p @ x, copies)
            return
        self.plain[place] += _shared(p @ torch.where(torch.isfinite(x), x, 0), copies)
        for bad, here in ((INFINITY, x == INFINITY), (-INFINITY, x == -INFINITY), (torch.nan, torch.isnan(x))):
            seen = allowed.to(x.dtype) @ here.to(x.dtype) > 0
            self.marks[place] += _shared(torch.where(seen, bad, 0.0).to(x.dtype), copies)

    @property
    def found(self) -> torch.Tensor:
        return self.plain if self.marks is None else self.plain + self.marks


def _shared(x: torch.Tensor, copies: int) -> torch.Tensor:
    return x if copies == 1 else x.unflatten(1, (-1, copies)).sum(2)


def hostile(*tensors: torch.Tensor) -> bool:
    """Whether one of them contains an infinity or NaN."""
    return not all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def attend(call: DeviceCall) -> tuple[torch.Tensor, torch.Tensor]:
    """(out (B, H, Q, E), lse (B, H, Q)), differentiable with respect to q, k, v, sinks and the tables."""
    return _Streamed.apply(call, call.q, call.k, call.v, call.sinks, *call.tables.values())


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call: DeviceCall, q, k, v, sinks, *tables):
        out, below = _forward(call)
        ctx.problem, ctx.read = call.problem, tuple(call.tables)
        ctx.save_for_backward(q, k, v, sinks, *tables, out, *below)
        ctx.set_materialize_grads(False)
        return out.to(q.dtype), below.lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dlse):
        q, k, v, sinks, *tables, out, top, total = ctx.saved_tensors
        call = DeviceCall(ctx.problem, q, k, v, sinks, dict(zip(ctx.read, tables, strict=True)))
        learned = [table for table, needed in zip(ctx.read, ctx.needs_input_grad[5:], strict=True) if needed]
        dq, dk, dv, dsinks, dtables = _backward(call, out, Denominator(top, total), dout, dlse, learned)
        found = (dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None if sinks is None else dsinks.to(sinks.dtype))
        return (
            None,
            *found,
            *(
                dtables[table].to(of.dtype) if table in dtables else None
                for table, of in zip(ctx.read, tables, strict=True)
            ),
        )


def _forward(call: DeviceCall) -> tuple[torch.Tensor, Denominator]:
    """out in the dtype of sums, and the denominators."""
    B, H, Q, _ = call.q.shape
    rules = Rules(call)
    out = Sum((B, H, Q, call.v.shape[3]), call, hostile(call.v))
    top, total = (torch.zeros(B, H, Q, dtype=call.real, device=call.q.device) for _ in range(2))
    for rows, parts in tiles(call):
        below = summed(rules, rows, parts)
        top[rows.place], total[rows.place] = below
        for keys, mixed in parts:
            seen = block(rules, rows, keys, mixed)
            p = shares(seen.s, below) * left_over(rules, seen.variables)
            out.add(rows.place, p, seen.allowed, rows.per_head(call.v, keys, call))
    return out.found, Denominator(top, total)


def _backward(call: DeviceCall, out, below: Denominator, dout, dlse, learned: list[Table]):
    """dS = P ∘ (dP − δ + dlse) with dP = dout vᵀ and δ = Σ dout · out, tile by tile; in the dtype of sums."""
    dout = torch.zeros_like(out) if dout is None else dout
    spoiled = hostile(call.q, call.k, call.v, dout)
    rest = -(dout.to(call.real) * out).sum(-1) + (0 if dlse is None else dlse)
    rules = Rules(call)
    partials = adjoints(the_score if call.problem.score is None else call.problem.score)
    names = ("score", "batch", "head", "query", "key")

    def function(rule, gives=call.real):
        return lower(rule, names, call.tables, call.real, rules.whole, gives)

    steep = None if partials.get(the_score) is None else function(partials[the_score])
    reads = [
        (leaf, function(partial), [function(part, torch.int64) for part in leaf.index])
        for leaf, partial in partials.items()
        if isinstance(leaf, Read) and leaf.table in learned
    ]
    dtables = {table: torch.zeros(call.tables[table].shape, dtype=call.real, device=out.device) for table in learned}
    dq, dk, dv = (Sum(tensor.shape, call, spoiled) for tensor in (call.q, call.k, call.v))
    for rows, parts in tiles(call):
        own = Denominator(*(part[rows.place] for part in below))
        q, given, extra = rows.of(call.q, call), rows.of(dout, call), rows.of(rest, call)[..., None]
        for keys, mixed in parts:
            at = (rows.batch, rows.groups, keys)
            seen = block(rules, rows, keys, mixed)
            k, v = rows.per_head(call.k, keys, call), rows.per_head(call.v, keys, call)
            p, left = shares(seen.s, own), left_over(rules, seen.variables)
            ds = torch.where(seen.allowed, p * (given @ v.mT * left + extra), 0)
            if steep is not None:
                dlogit = call.problem.scale * _through(steep, seen, ds)
                dq.add(rows.place, dlogit, seen.allowed, k)
                dk.add(at, dlogit.mT, seen.allowed.mT, q, rows.copies)
            dv.add(at, (p * left).mT, seen.allowed.mT, given, rows.copies)
            for leaf, partial, index in reads:
                into = dtables[leaf.table]
                place = [
                    torch.clamp(part(*seen.variables).expand(ds.shape), 0, size - 1)
                    for part, size in zip(index, into.shape, strict=True)
                ]
                into.index_put_(tuple(place), _through(partial, seen, ds), accumulate=True)
    dsinks = None
    if call.sinks is not None:
        dsinks = (shares(call.sinks[:, None].to(call.real), below) * rest[..., None]).sum((0, 2))
    return dq.found, dk.found, dv.found, dsinks, dtables


def _through(partial: Callable, seen: Block, ds: torch.Tensor) -> torch.Tensor:
    """The gradient with respect to a leaf of the score, given d score' / d leaf; 0 for masked pairs."""
    return torch.where(seen.allowed, ds * partial(*seen.variables), 0)
