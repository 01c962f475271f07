"""Where q, k and v of each attention call come from, and where its output goes: products with the layer's weights, read
while the model runs. The weights and tables that no output depends on.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from ...observe.handwritten import tensors_in
from ...observe.observed_call import HF, ObservedCall
from ...observe.observer import Observer
from ..subject import Outputs, Raised, Subject, floats, raising, seeded
from .audited_run import ORDERED, SPLIT

RECENT = 16  # products before a call among which the sources of q, k and v are
ALONG = 1 - 1e-5  # the cosine of vectors that point in one direction
FEWEST = 4  # rows for which equal lengths mean anything
WIDEST = 1 << 16  # columns of such a product
KEPT = 1 << 22  # numbers of a call's product that are kept
TRIED = 64  # weights that are changed to see whether an output depends on them
FACTORS = ("mul", "div", "__mul__", "__truediv__")  # of scores: numbers, or gates, decays and sums of weights
OTHERS = ("sigmoid", "tanh", "relu", "softplus")  # functions of scores that take the place of a softmax
AFFINE = re.compile(r"mul|div|add|sub|fill|where|drop|^to$|type|float|half|view|shape|contiguous|clone|permute|squeeze")
ABSOLUTE = re.compile(r"(^|[._])(wpe|pe|w_pos)($|[._])|pos(ition(s|al)?)?_?(emb|enc|$|\.)|embed_pos")
KINDS = {  # of tables, by their names
    "turns": re.compile(r"inv_freq|freqs|rotary|rope|(^|[._])(cos|sin)(_|$)"),
    "slopes": re.compile(r"slope|alibi"),
    "masks": re.compile(r"mask|causal|tril"),
    "biases": re.compile(r"relative_attention_bias|relative_position_bias_table|(rel|position|encoder|decoder)_bias"),
}
UNJUDGED = "bias", "expert", "global", "index", "compress", "embed"  # in names of weights that some calls do not read
OTHER = re.compile(r"rel|bias|bucket|_ids$|conv|time|sampl|integer|quant")  # in names of tables that are none of these


class Product(NamedTuple):
    """weight: the name of the one that made it · y: the result · order: of the weights of a norm, the row of a product
    before it that each row is
    """

    weight: str
    y: torch.Tensor
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """The product that the heads of q, k or v are made of.

    weight: its name · split: how it became heads, `ORDERED` or `SPLIT` · blocks: for each head, which of the blocks of
    D columns it is · factor: how many times as long its vectors are as the product's · turned: whether they point
    elsewhere · still: in which share of the heads row 0 does not · part, vectors (H, n, D): the heads, and the columns
    of the product; None if they are too many · order: of `Product`
    """

    weight: str
    split: str
    blocks: tuple[int, ...] = ()
    factor: float = 1.0
    turned: bool = False
    still: float = 1.0
    part: Any = field(default=None, repr=False)
    vectors: Any = field(default=None, repr=False)
    order: tuple[int, ...] | None = None


@dataclass(eq=False)
class CallSources:
    """The sources of one call. shape: (heads, rows, depth) of q; () if unknown · keys: how many · width: of v · merged:
    how the heads of the output were merged into what a weight multiplies; None where none does · orders: of q, k or v
    whose rows are those of a product in another order, the row of each · repeats: whether all rows have the query of
    the first
    """

    shape: tuple[int, ...]
    keys: int
    q: Source | None
    k: Source | None
    v: Source | None
    width: int = 0
    merged: str | tuple[int, ...] | None = None
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    repeats: bool = False


class Unread(NamedTuple):
    """What no output depends on. kind: "weight", "layer" (all of its weights), "input", "positions", "turns" (rotary),
    "slopes", "biases", "masks" or "heads" (of biases) · part: the rows or columns of a weight or table, in words; ""
    for all · role: the queries, keys or values that a weight is for
    """

    kind: str
    name: str
    part: str = ""
    role: str | None = None


class Table(NamedTuple):
    """A table of positions: its kind, as in `Unread`, its name, its numbers, and the module that reads it."""

    kind: str
    name: str
    numbers: torch.Tensor
    owner: str


# Roles of weights by the last two parts of their names.
ROLES = {
    role: re.compile(rf"(^|[._])(w_?)?({names})(_|$|proj|\.)")
    for role, names in {"queries": "q|query", "keys": "k|key", "values": "v|val|value", "outputs": "o|out"}.items()
}


class Sources(Observer):
    """Finds the sources of every attention call of a model while it runs.

    calls: by the path of the layer, in order · ran: the paths of the modules that ran · unweighted: (path of the layer,
    the function in the place of the softmax or "") where q·k is multiplied with values without a softmax · padded:
    whether some positions are padding, so that the others may be counted from elsewhere
    """

    def __init__(self, model: torch.nn.Module):
        super().__init__(model)
        self.owners = {_memory(part): name for name, part in model.named_parameters()}
        self.recent: deque[Product] = deque(maxlen=RECENT)
        self.joined: deque[tuple[torch.Tensor, list[int]]] = deque(maxlen=RECENT)
        self.calls: dict[str, list[CallSources]] = defaultdict(list)
        self.ran: set[str] = set()
        self.unweighted: list[tuple[str, str]] = []
        self.padded = False
        self.waiting: tuple[CallSources, torch.Tensor] | None = None

    def _entered(self, module, args: tuple, kwargs: dict[str, Any]) -> None:
        super()._entered(module, args, kwargs)
        self.ran.add(self.layer)

    def stepped(self, function, args: tuple, kwargs: dict[str, Any], out, error: Exception | None) -> None:
        """Takes products with weights: what they are made of, and whether they take the output of the last call."""
        if not _is_float(out) or out.ndim < 2 or out.shape[-1] > WIDEST:
            return
        given = [part for part in tensors_in((*args, *kwargs.values())) if _is_float(part)]
        if getattr(function, "__name__", "") in ("cat", "concat", "concatenate"):
            widths = [part.shape[-1] for part in given if part.shape[-1]]
            self.joined.extend([(out.detach(), widths)] * (len(widths) > 1 and sum(widths) == out.shape[-1]))
        named = [self.owners.get(_memory(part)) for part in given]
        weight = max(((part.numel(), name) for part, name in zip(given, named) if name), default=(0, None))[1]
        x = next((part for part, name in zip(given, named) if name is None and part.ndim > 1), None)
        if weight is None or x is None:
            if (other := self._in_place_of_softmax(out)) is not None:
                self.unweighted.append((self.layer, other))
            return
        x, y = x.detach(), out.detach().clone()
        if "conv" in getattr(function, "__name__", ""):  # its positions are the last axes
            x, y = (part.flatten(2).transpose(1, 2) for part in (x, y))
        if self.waiting is not None and self.waiting[0].merged is None:
            self.waiting[0].merged = merged(x, self.waiting[1])
        norm = min(part.ndim for part, name in zip(given, named) if name == weight) == 1
        self.recent.append(Product(weight, y, _order_of_directions(x, self.recent) if norm else None))

    def _in_place_of_softmax(self, out: torch.Tensor) -> str | None:
        """The function in the place of the softmax, where this is the product of values with q·k of two projections;
        "" if the scores were scaled and masked only. Linear attention by design has a function of q and k, or a decay.
        """
        trail = self.products.trails.get(out)
        factors = [] if trail is None else [self.products.trails.get(part) for part in trail.outside]
        scores = next((part for part in factors if part not in (None, trail)), None)
        if scores is None or scores.scores is not None:
            return None
        functions = {step.name.strip("_") for step in scores.steps[1:] if not AFFINE.search(step.name)}
        if len(functions) > 1 or not functions <= {*OTHERS}:
            return None
        for step in scores.steps[1:]:
            others = tensors_in((*step.args, *step.kwargs.values()))
            if step.name in FACTORS and any(part.numel() > 1 and part.shape[-1] > 1 for part in others):
                return None
        of_q, of_k = (source_of(part, self.recent) for part in (scores.q, scores.k))
        apart = of_q and of_k and (of_q.weight, of_q.blocks) != (of_k.weight, of_k.blocks)
        return "".join(functions) if apart else None

    def _of_parts(self, given: torch.Tensor) -> Source | None:
        """The source of what was concatenated of columns of products, as the keys of latent attention are."""
        widths = next((widths for out, widths in self.joined if _memory(out) == _memory(given)), ())
        if sum(widths) != given.shape[-1]:
            return None
        found = [source_of(part, self.recent) for part in given.split(widths, -1)]
        known = [each for each in found if each is not None and each.vectors is not None]
        factors = [each.factor for each in known]
        if len(known) < len(found) or max(factors) - min(factors) > 1e-3 * max(factors):
            return None
        part, vectors = (np.concatenate([getattr(each, name) for each in known], -1) for name in ("part", "vectors"))
        turned, still = any(each.turned for each in known), min(each.still for each in known)
        return replace(known[0], turned=turned, still=still, part=part, vectors=vectors)

    def called(self, call: ObservedCall) -> None:
        """Finds the sources of a call."""
        q, k, v = (_of_one_entry(part) for part in (call.q, call.k, call.v))
        out = _of_one_entry(call.out.transpose(1, 2) if call.kind == HF and _is_float(call.out) else call.out)
        if q is None or k is None or v is None:
            self.calls[call.layer].append(CallSources((), 0, None, None, None))
            self.waiting = None
            return
        of_q, of_k, of_v = (self._of_parts(part) or source_of(part, self.recent) for part in (call.q, call.k, call.v))
        sources = CallSources(tuple(q.shape), k.shape[1], of_q, of_k, of_v, v.shape[2])
        for name, part, source in (("q", q, of_q), ("k", k, of_k), ("v", v, of_v)):
            if (order := _order(part, self.recent) if source is None else source.order) is not None:
                sources.orders[name] = order
        alone = q.shape[1] == k.shape[1] >= FEWEST and bool(q.any()) and not bool((k == k[:, :1]).all())
        sources.repeats = alone and bool((q == q[:, :1]).all())
        self.calls[call.layer].append(sources)
        self.waiting = None if out is None else (sources, out)


def source_of(given: torch.Tensor, products: Iterable[Product]) -> Source | None:
    """The source of q, k or v: the last product that explains its first entry (heads, n, D)."""
    part = _of_one_entry(given)
    if part is None or part.shape[1] < FEWEST:
        return None
    for product, blocks in _every(part, products, len(part)):
        if (found := _blocks(product.weight, part, blocks)) is not None:
            return replace(found, order=product.order)
    for product in reversed([*products] if len(part) > 1 else ()):
        for piece in _pieces(product.y.to(part), part.numel()):
            if (factor := _ratio(part, piece.reshape(part.shape))) is not None:
                return Source(product.weight, SPLIT, factor=factor)
    return None


def _every(part: torch.Tensor, products: Iterable[Product], heads: int = 0) -> Iterator[tuple[Product, torch.Tensor]]:
    """(a product, its blocks of the rows and columns of (heads, n, D)), the last product first."""
    for product in reversed([*products]):
        if product.y.device == part.device:
            yield from ((product, blocks) for blocks in _split(product.y.float(), part.shape[1], part.shape[2], heads))


def _order(part: torch.Tensor, products: Iterable[Product]) -> tuple[int, ...] | None:
    """The row of a product that each row of q, k or v (heads, n, D) has the length of, up to one factor, where all
    lengths of a head differ and its heads agree; None if there is none.
    """
    lengths, places = part.norm(dim=-1).sort(-1)
    if part.shape[1] < FEWEST + 2 or not (lengths.diff(dim=-1) > 0).all():
        return None
    for _, blocks in _every(part, products):
        others, rows = blocks.norm(dim=-1).sort(-1)
        ratios = lengths[0] / others.clamp(min=1e-30)
        alike = ratios.amax(-1) - ratios.amin(-1) <= _tolerance(part) * ratios.mean(-1)
        for block in alike.nonzero().flatten().tolist()[:1]:
            return tuple(rows[block][places[0].argsort()].tolist())
    return None


def _order_of_directions(x: torch.Tensor, products: Iterable[Product]) -> tuple[int, ...] | None:
    """The row of a product that each row of what a norm is given points along; None if there is none."""
    part = _of_one_entry(x)
    for each in () if part is None else (part, part.transpose(0, 1)):
        for _, blocks in _every(each, products) if each.shape[1] >= FEWEST else ():
            cosines, rows = (_directions(each[0]) @ _directions(blocks).mT).max(-1)
            for block in (cosines > ALONG).all(-1).nonzero().flatten().tolist()[:1]:
                return tuple(rows[block].tolist()) if len(rows[block].unique()) == len(rows[block]) else None
    return None


def _directions(vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)


def _split(y: torch.Tensor, n: int, D: int, heads: int = 0) -> Iterator[torch.Tensor]:
    """The blocks (n, D) of a product, for each of its axes that has n positions; for some heads also those that begin
    at any column.
    """
    for axis in (axis for axis, size in enumerate(y.shape) if size == n):
        columns = y.movedim(axis, 0).reshape(n, -1)
        if columns.shape[1] % D == 0:
            yield columns.reshape(n, -1, D).transpose(0, 1)
        if columns.shape[1] > D > 1 and heads * y.numel() * D < KEPT * bool(heads):
            yield columns.unfold(1, D, 1).transpose(0, 1)


def _pieces(y: torch.Tensor, count: int) -> Iterator[torch.Tensor]:
    """A product, or each of two or three equal pieces of its columns, with so many numbers."""
    parts = y.numel() // count
    if parts in (1, 2, 3) and y.numel() == parts * count and y.shape[-1] % parts == 0:
        yield from y.chunk(parts, -1)
    if y.numel() == count and y.ndim == 3:
        yield y.mT  # as a convolution has it


def _blocks(weight: str, part: torch.Tensor, blocks: torch.Tensor) -> Source | None:
    """The source, if each head (n, D) is one of these blocks (n, D), up to one factor and to rotations in each row."""
    if len(part) * len(blocks) > WIDEST:
        return None
    near = _tolerance(part)
    lengths = part.norm(dim=-1)[:, None] / blocks.norm(dim=-1).clamp(min=1e-30)[None]
    means = lengths.mean(-1)
    alike = (lengths.amax(-1) - lengths.amin(-1) <= near * means) & (means > 0)
    if not alike.any(1).all():
        return None
    off = (part[:, None] - means[..., None, None] * blocks[None]).abs().amax(-1) / part.abs().amax(-1)[:, None]
    still, first = alike & (off <= near).all(-1), alike & (off[..., 0] <= near)
    fits = still if still.any(1).all() else first if first.any(1).all() else alike
    chosen: list[int] = []
    for head in fits:
        every = head.nonzero().flatten().tolist()
        chosen.append(next((at for at in every if chosen and at >= chosen[-1]), every[0]))
    if fits is alike and any(int(head.sum()) > 1 for head in fits):
        return None  # several blocks of the same lengths, such as normalized ones
    arrays = (each.cpu().numpy() for each in (part, blocks[chosen])) if part.numel() <= KEPT else ()
    heads = range(len(chosen))
    turned, share = not bool(still.any(1).all()), float(first[heads, chosen].float().mean())
    return Source(weight, ORDERED, tuple(chosen), float(means[heads, chosen].mean()), turned, share, *arrays)


def _ratio(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """The constant ratio of the lengths of vectors; None if it differs, or if all are of one length."""
    lengths = one.norm(dim=-1)
    ratios = lengths / other.norm(dim=-1).clamp(min=1e-30)
    unclear = bool(lengths.max() - lengths.min() <= 0.1 * lengths.max()) or not 0 < float(ratios.max()) < math.inf
    return None if unclear or ratios.max() - ratios.min() > _tolerance(one) * ratios.max() else float(ratios.mean())


def merged(x: torch.Tensor, out: torch.Tensor) -> str | tuple[int, ...] | None:
    """How x, which a weight multiplies, was made of the heads (H, n, E) of an output: `SPLIT`, or the order of heads;
    None if it is something else.
    """
    H, n, E = out.shape
    x = x[:1] if x.numel() == len(x) * out.numel() else x
    if x.numel() != out.numel() or n < FEWEST or x.device != out.device or bool((out == out[:, :1]).all()):
        return None
    x = x.float()
    for blocks in _split(x, n, E):
        found = _blocks("", out, blocks)
        if found is not None and not found.turned:
            return found.blocks
    close = any((each.reshape(out.shape) - out).abs().max() <= _tolerance(out) * out.abs().max() for each in (x, x.mT))
    return SPLIT if H > 1 and close else None


def _tolerance(part: torch.Tensor) -> float:
    """The relative difference that rounding and angles in float32 explain."""
    return 2e-2 if bool((part.half() == part).all() or (part.bfloat16() == part).all()) else 1e-3


def _of_one_entry(part: Any) -> torch.Tensor | None:
    """(heads, n, D) of a call: those of its first batch entry, such as a window, where heads have an axis of their own
    or two, as in groups.
    """
    if not _is_float(part) or part.ndim < 3:
        return None
    return (part.detach() if part.ndim == 3 else part.detach()[0].flatten(0, -3)).float()


def _is_float(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.is_floating_point() and part.layout is torch.strided


def _memory(part: torch.Tensor) -> int:
    """Where the numbers of a tensor are, which is the same for its views."""
    return part.untyped_storage().data_ptr()


@contextmanager
def replaced(numbers: dict[torch.Tensor, torch.Tensor]) -> Iterator[None]:
    """Tensors of a model with other numbers."""
    before = {part: part.data for part in numbers}
    try:
        for part, other in numbers.items():
            part.data = other
        yield
    finally:
        for part, own in before.items():
            part.data = own


def _noisy(part: torch.Tensor, rows: slice = slice(None)) -> torch.Tensor:
    """The numbers of a tensor with noise of their size added, in these rows of its first axis longer than 1."""
    made = part.detach().clone()
    if not (part.is_floating_point() or part.is_complex()):
        return 1 - made if made.dtype is not torch.bool else ~made
    real = torch.view_as_real(made) if made.is_complex() else made
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(0)).to(real)
    axis = _rows_axis(part)
    some = real.movedim(axis, 0)[rows] if part.ndim else real
    some += (noise.movedim(axis, 0)[rows] if part.ndim else noise) * max(float(real.float().std(correction=0)), 0.1)
    return made


def _rows_axis(part: torch.Tensor) -> int:
    """The first axis longer than 1, which is the positions of a table of positions."""
    return next((axis for axis, size in enumerate(part.shape) if size > 1), 0)


def read_sources(subject: Subject) -> Sources:
    """The sources of all calls in one forward pass, which is run once for each subject."""
    if (known := vars(subject).get("sources")) is not None:
        return known
    sources = Sources(subject.model)
    with torch.compiler.set_stance("force_eager"), sources.watching():
        subject.call(subject.inputs)
    sources.recent.clear()
    sources.joined.clear()
    sources.waiting = None
    sources.padded = subject.without_padding.length < subject.length
    vars(subject).update(sources=sources)
    return sources


def unread(subject: Subject, sources: Sources) -> Iterator[Unread]:
    """The input, the weights of attention layers, and the tables of positions that no output depends on.

    Gradients say which weights these may be; each is then changed, and the outputs stay what they were, bit for bit.
    Weights that are 0, as a projection may be before training, are random meanwhile: nothing would depend on what they
    multiply.
    """
    weights = [part for part in subject.model.parameters() if _is_float(part) and not part.is_inference()]
    with replaced({part: _noisy(part) for part in weights if float((part == 0).float().mean()) > 1 / 64}):
        other = replace(subject)
        vars(other).update(shapes=subject.shapes)
        yield from _unread(other, sources)


def _unread(subject: Subject, sources: Sources) -> Iterator[Unread]:
    for name in dict.fromkeys((subject.sequence, *(mask.of for mask in subject.masks))):
        if name is not None and subject.can_change(name):
            other = {**subject.inputs, name: subject.redrawn(subject.inputs[name])}
            if _same(subject, subject.run(other)):
                yield Unread("input", name)
                return
    for each, zero in list(_without_gradient(subject, sources))[:TRIED]:
        noisy = {weight: torch.where(where, _noisy(weight), weight.detach()) for weight, where in zero.items()}
        if _changes_nothing(subject, noisy, calls=each.kind == "weight"):
            yield each
    known = [call.q.turned for calls in sources.calls.values() for call in calls if call.q and call.k]
    groups: dict[tuple[str, str], list[Table]] = defaultdict(list)
    for table in _tables(subject, sources):
        groups[table.kind, {"turns": "", "slopes": "", "biases": table.name}.get(table.kind, table.owner)].append(table)
    for (kind, _), tables in groups.items():
        if kind != "turns" or (known and not any(known)):  # else rotated, by these tables or by what is computed anew
            rows = max((call.shape[1] for calls in sources.calls.values() for call in calls if call.shape), default=0)
            yield from _unread_tables(subject, tables, max(rows, subject.length))


def _unread_tables(subject: Subject, tables: list[Table], length: int) -> Iterator[Unread]:
    """Tables of one kind and module, if no output depends on any of them, or only on their first rows, or on the first
    column. Of several some may be for other inputs. length: of the longest sequence
    """
    if _changes_nothing(subject, {table.numbers: _noisy(table.numbers) for table in tables}):
        yield Unread(tables[0].kind, tables[0].name)
        return
    every = [table.numbers for table in tables]
    later = [
        part for part in every if part.ndim > 1 and tables[0].kind != "masks" and part.shape[_rows_axis(part)] >= length
    ]
    changed = {part: _noisy(part, slice(FEWEST, None)) for part in later}
    if changed and length >= 2 * FEWEST and _changes_nothing(subject, changed):
        yield Unread(tables[0].kind, tables[0].name, f"rows from {FEWEST} on")
    elif tables[0].kind == "biases" and 1 < every[0].shape[1] < every[0].shape[0]:
        columns = _noisy(every[0])
        columns[:, 0] = every[0].detach()[:, 0]
        if _changes_nothing(subject, {every[0]: columns}):
            yield Unread("heads", tables[0].name, "columns from 1 on")


def _changes_nothing(subject: Subject, numbers: dict[torch.Tensor, torch.Tensor], calls: bool = True) -> bool:
    """Whether the outputs, and those of all attention calls, are bit for bit the same with other numbers in the model.
    Of the latter some rows may be read by nothing, such as those beside a class token.
    """
    try:
        with replaced(numbers):
            same = _same(subject, subject.run(subject.inputs))
            after = _call_outputs(subject) if same and calls else []
    except Raised:  # it checks these numbers, so it reads them
        return False
    return same and all(map(torch.equal, after, _call_outputs(subject) if after else []))


def _call_outputs(subject: Subject) -> list[torch.Tensor]:
    """The outputs of all attention calls."""
    observer = Observer(subject.model)
    with torch.compiler.set_stance("force_eager"), observer.watching():
        subject.run(subject.inputs)
    return [call.out for call in observer.seen if isinstance(call.out, torch.Tensor)]


def _same(subject: Subject, outputs: Outputs) -> bool:
    """Whether these are the outputs of the subject, bit for bit."""
    return all(torch.equal(part, outputs[name]) for name, part in subject.outputs.items() if name in outputs)


def _without_gradient(subject: Subject, sources: Sources) -> Iterator[tuple[Unread, dict[torch.Tensor, torch.Tensor]]]:
    """(what may be unread, by weight where it gets no gradient) of weights of attention layers. Where no weight of a
    layer gets one, its output is not used, or only to choose among codes, so they are judged together; and one of
    several weights for the same may be for other tokens.
    """
    shapes = {
        _scope(subject.model, layer): (*call.shape[:2], min(call.shape[2], call.width))
        for layer, calls in sources.calls.items()
        for call in calls
        if call.keys > 1 and call.shape[1] > 1  # the weight of a single key is 1, whatever q and k are
    }
    tables = (name for name, part in subject.model.named_modules() if isinstance(part, torch.nn.Embedding))
    looked_up = {f"{name}.weight" for name in tables}  # by some tokens or positions only, or in another setting
    parameters = ((name, part) for name, part in subject.model.named_parameters() if name not in looked_up)
    every = {name: part for name, part in parameters if _is_float(part) and not part.is_inference()}
    made = {
        each.weight for calls in sources.calls.values() for call in calls for each in (call.q, call.k, call.v) if each
    }
    positional, keywords = subject.arguments(subject.inputs)
    copies = {name: part.detach().requires_grad_() for name, part in every.items()}
    total: Any = None  # without gradients, as of FlexAttention on CPUs, each weight is changed instead
    with suppress(Raised), torch.compiler.set_stance("force_eager"), raising(), seeded(0), torch.enable_grad():
        result = torch.func.functional_call(subject.model, copies, positional, keywords)
        outputs = [part for _, part in floats(result) if part.requires_grad]
        noise = torch.Generator().manual_seed(0)
        total = sum((part.float() * torch.randn(part.shape, generator=noise).to(part.device)).sum() for part in outputs)
    for scope, shape in shapes.items() if not isinstance(total, int) else ():
        names = [name for name, part in every.items() if name.startswith(scope) and _is_judged(name, part)]
        if not names:
            continue
        weights, judged = [every[name] for name in names], [copies[name] for name in names]
        if total is None:
            for name, weight in zip(names, weights):
                yield Unread("weight", name, "", _role(name)), {weight: torch.ones_like(weight, dtype=torch.bool)}
            continue
        gradients = torch.autograd.grad(total, judged, retain_graph=True, allow_unused=True, materialize_grads=True)
        read = {(_role(name), g.shape) for name, g in zip(names, gradients) if g.any() and _role(name)}
        if not any(map(torch.any, gradients)):
            yield Unread("layer", scope), dict(zip(weights, (gradient == 0 for gradient in gradients)))
            continue
        for name, weight, gradient in zip(names, weights, gradients):
            found = _zeros(gradient, shape) if not gradient.any() or name in made else None
            used = (_role(name), weight.shape) in read and name.rpartition(".")[0] in sources.ran
            if found is not None and (found[0] or not used):
                yield Unread("weight", name, found[0], found[1] or _role(name)), {weight: gradient == 0}


def _role(name: str) -> str | None:
    """What a weight is for, if it is named after that; norms are beside the weights of the same name."""
    leaf = ".".join(name.lower().split(".")[-2:])
    return None if "norm" in leaf else next((role for role, names in ROLES.items() if names.search(leaf)), None)


def _scope(model: torch.nn.Module, layer: str) -> str:
    """The start of the names of a layer's weights: those of the outermost module around it that is an attention."""
    path = layer if layer in dict(model.named_modules()) else ""
    while (above := path.rpartition(".")[0]) and "ttention" in type(model.get_submodule(above)).__name__:
        path = above
    return f"{path}." if path else ""


def _is_judged(name: str, part: torch.Tensor) -> bool:
    """Whether a weight has to be read: no bias, which the softmax may cancel, nor one that is for some tokens only."""
    return part.ndim > 0 and not any(word in name for word in UNJUDGED)


def _zeros(gradient: torch.Tensor, shape: tuple[int, ...]) -> tuple[str, str | None] | None:
    """(the rows or columns without gradient in words, or "" for all; what they are for); None if there are fewer than a
    head in a row, or if the weight is that of one head.

    shape: (heads, rows, depth) of the queries
    """
    if not gradient.any():
        return "", None
    heads, _, depth = shape
    for axis, word in enumerate(("rows", "columns")[: gradient.ndim if gradient.ndim > 1 else 0]):
        at = (gradient.movedim(axis, 0).flatten(1) == 0).all(1).nonzero().flatten().tolist()
        starts, ends = ([place for place in at if place + step not in at] for step in (-1, 1))
        size = gradient.shape[axis]
        if size >= 2 * depth and at and min(end + 1 - start for start, end in zip(starts, ends)) >= depth:
            if not starts[0] and size > ends[0] + 1 > heads * depth:  # queries and keys: as there
                return None
            role = "values" if ends[0] + 1 == size else "keys" if starts[0] >= heads * depth else None
            return f"{word} " + " and ".join(f"{start} to {end}" for start, end in zip(starts, ends)), role
    return None


def _tables(subject: Subject, sources: Sources) -> Iterator[Table]:
    """The tables of positions in modules that ran: parameters, buffers and other attributes."""
    seen: set[int] = set()
    for path, module in subject.model.named_modules():
        owner = path.rpartition(".")[0] if isinstance(module, torch.nn.Embedding) else path
        if (owner or type(subject.model).__name__) not in sources.ran:
            continue
        for leaf, part in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
            if not isinstance(part, torch.Tensor) or id(part) in seen or part.is_inference():
                continue
            seen.add(id(part))
            name = f"{path}.{leaf}".strip(".")
            kind = _kind(name.lower(), part, subject.length)
            if kind == "slopes" and not any(layer.startswith(path) for layer in sources.calls):
                continue  # of layers without a softmax
            if kind and (part.is_floating_point() or part.is_complex() or kind == "masks"):
                yield Table(kind, name, part, owner)


def _kind(name: str, part: torch.Tensor, length: int) -> str | None:
    """What a table is, by its name: "turns", "slopes" or "positions"; None of others."""
    for kind, names in KINDS.items():
        if kind == "masks":
            square = part.ndim > 1 and part.shape[-1] == part.shape[-2] > 1
            hides = square and (bool(names.search(name)) or torch.equal(part, torch.ones_like(part).tril()))
            if hides and len(part.unique()) > 1:
                return kind
        elif names.search(name):
            return kind if kind != "biases" or part.ndim == 2 else None
    wide = part.ndim > 1 and max(part.shape) >= length > 1
    return "positions" if wide and ABSOLUTE.search(name) and not OTHER.search(name) else None
