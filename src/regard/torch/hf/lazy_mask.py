"""The masks of transformers as expressions, and packed documents: position ids that restart at 0 separate them, or
cumulative lengths.

transformers separates documents only in a call without a mask and without a cache, and models have a cache by default.
Attention receives the position ids in most decoders, and separates them in every call that has all keys.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...common.errors import Reason, Refused, refuse
from ...engines.plan import STEP
from ...language import expr
from ...language.analysis import bounds, evaluate
from ...language.callables import as_mask
from ...language.expr import Const, Expr, Op, frozen_table
from ...language.intervals import Interval
from ...language.masks import causal, documents
from ...observe.recorder import NAME

OWN = "transformers.masking_utils"  # the module of transformers' own mask functions
CAUSAL, EVERYTHING = causal(), expr.lift(True)
LARGEST = 2**31 - 1  # more batch entries, rows and keys than there are


def between_graphs(function):
    """Decorates a function so that torch.compile breaks the graph and calls it between two graphs."""
    outside = torch.compiler.disable(function)

    @functools.wraps(function)
    def either(*args, **kwargs):
        return (outside if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return either


class NoSuchAttribute(Refused, AttributeError):
    """A refusal that `hasattr` and `copy` interpret as a missing attribute."""


def _refusal(what: str, kind=Refused) -> Refused:
    return kind(
        "regard mask",
        [
            Reason(
                "the model computes with its mask instead of passing it to the attention function",
                what,
                "a model that uses transformers' attention interface",
                ('load this model with attn_implementation="eager": its own attention code does not use the interface'),
            )
        ],
    )


class LazyMask:
    """Which keys each row may attend to, as an expression: `rule` over batch, head, query, key.

    Row i is at position query_start + i of the key axis, as everywhere in regard; key 0 is token `first` of the text,
    if a cache has dropped those before it. The object has the shape (B, 1, Q, K)
    of the mask that it represents, and can be moved, copied and sliced along rows, or along keys from the first. Its
    only head, `mask[:, 0]`, is a tensor of booleans, which indexers of sparse attention read. All other operations
    raise `Refused`.
    """

    ndim = 4
    dtype = torch.bool
    requires_grad = False

    def __init__(
        self,
        rule: Expr,
        shape: tuple[int, ...],
        query_start: int,
        device: torch.device | str = "cpu",
        first: int = 0,
    ):
        self.rule, self.shape, self.query_start = rule, torch.Size(shape), query_start
        self.device, self.first = torch.device(device), first

    @property
    def everything(self) -> bool:
        """Whether every row may attend every key."""
        return self.rule is EVERYTHING or (isinstance(self.rule, Const) and self.rule.value is True)

    @property
    def begins(self) -> list[int]:
        """(B,) the first real key of each entry, after padding; empty without padding."""
        found = [table.array for table in self.rule.tables if table.name == "padding"]
        if not found:
            return []
        B, K = self.shape[0], self.shape[3]
        return np.broadcast_to(found[0], (B, found[0].shape[-1]))[:, :K].argmax(1).tolist()

    def size(self, dim: int | None = None):
        """The shape, or one axis of it."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """4, the number of axes of the tensor that it represents."""
        return self.ndim

    def contiguous(self) -> LazyMask:
        """The mask itself, which has no memory layout."""
        return self

    clone = contiguous  # it is immutable

    def to(self, *args, **kwargs) -> LazyMask:
        """The mask on another device; conversion to another dtype raises `Refused`."""
        named = [*args, *kwargs.values()]
        if any(isinstance(part, torch.dtype) and part is not torch.bool for part in named):
            raise _refusal(f"mask.to({', '.join(map(str, named))})")
        devices = [part for part in named if isinstance(part, torch.device | str)]
        return LazyMask(self.rule, self.shape, self.query_start, devices[0], self.first) if devices else self

    @functools.cached_property
    def dense(self) -> torch.Tensor:
        """The same as booleans on the CPU, with one entry along axes on which nothing depends."""
        B, _, Q, K = self.shape
        places = np.ix_(range(B), [0], range(self.query_start, self.query_start + Q), range(K))
        allowed = evaluate(self.rule, dict(zip(("batch", "head", "query", "key"), places)))
        return torch.from_numpy(np.array(allowed, ndmin=4))

    def __getitem__(self, index) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [part for part in index if not isinstance(part, torch.Tensor)]:
            axis = index.index(Ellipsis)
            index = index[:axis] + (slice(None),) * (5 - len(index)) + index[axis + 1 :]
        index += (slice(None),) * (4 - len(index))
        if index == (slice(None), 0, slice(None), slice(None)):
            return self.dense.broadcast_to(self.shape)[:, 0].clone().to(self.device)
        if len(index) != 4 or not all(isinstance(part, slice) for part in index):
            raise _refusal(f"mask[{index}]")
        cuts = [range(*part.indices(size)) for part, size in zip(index, self.shape, strict=True)]
        whole = all(len(cut) == size for cut, size in zip(cuts[:2], self.shape[:2], strict=True))
        if not whole or any(cut.step != 1 for cut in cuts) or (cuts[3].start and len(cuts[3])):
            raise _refusal(f"mask[{', '.join(map(str, index))}]")
        shape = (*self.shape[:2], len(cuts[2]), len(cuts[3]))
        return LazyMask(self.rule, shape, self.query_start + cuts[2].start, self.device, self.first)

    def __getattr__(self, name: str):
        raise _refusal(f"mask.{name}", NoSuchAttribute)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise _refusal(f"torch.{getattr(function, '__name__', function)}(…, mask, …)")

    __hash__ = object.__hash__

    def __repr__(self):
        return f"<mask {self.rule!r} of shape {list(self.shape)}, first query at {self.query_start}>"


def _unsupported(name: str):
    def method(self, *args):
        raise _refusal(f"{name.strip('_')} on the mask")

    return method


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
for _name in (
    *(f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")),
    *(
        f"__{name}__"
        for name in (
            "lt",
            "le",
            "gt",
            "ge",
            "eq",
            "ne",
            "neg",
            "pos",
            "abs",
            "invert",
            "bool",
            "int",
            "float",
            "index",
            "len",
            "iter",
            "contains",
            "array",
            "setitem",
        )
    ),
):
    setattr(LazyMask, _name, _unsupported(_name))


@between_graphs
def lazy_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset=0,
    kv_offset=0,
    *,
    mask_function=None,
    attention_mask=None,
    device="cpu",
    **kwargs,
) -> LazyMask:
    """The mask function for regard: transformers' mask function and padding as one expression.

    transformers uses absolute positions: row i is q_offset + i, key j is kv_offset + j (a sliding cache has dropped
    the previous keys). In regard keys start at 0, so row i is at q_offset + i - kv_offset, and kv_offset is added
    before mask_function is called.

    mask_function(b, h, q, kv) is traced. attention_mask: None, booleans (B, n) that are true for real tokens (keys
    beyond n are padding), or a `LazyMask`. Other arguments of transformers (skips, dtype, vmap) have no effect.
    """
    if isinstance(attention_mask, LazyMask):
        return attention_mask
    first = int(kv_offset)
    shape = (batch_size, 1, int(q_length), int(kv_length))
    start = int(q_offset) - first
    rule = EVERYTHING if mask_function is None else simplified(_traced(mask_function, first, start), shape, start)
    if attention_mask is not None:
        padding = _padding(attention_mask, first, first + shape[3], step=shape[2] == 1)
        rule = padding if rule is EVERYTHING else rule if padding is EVERYTHING else rule & padding
    return LazyMask(rule, shape, start, device, first)


def _traced(mask_function, first: int, start: int) -> Expr:
    """The expression of a mask function over keys from `first` on, and rows from `start` after that."""
    if getattr(mask_function, "__module__", "") == OWN and mask_function.__closure__ is None:
        return _of_constant(mask_function, first, start >= 0)
    return _shifted(mask_function, first)


@functools.lru_cache(maxsize=16)
def _of_constant(mask_function, first: int, forward: bool) -> Expr:
    """The same for a function that captures nothing, so that it means the same in every call. forward: no row is before
    the first key.
    """
    rule = _shifted(mask_function, first)
    return simplified(rule, (LARGEST, 1, LARGEST, LARGEST), 0) if forward else rule


def _shifted(mask_function, first: int) -> Expr:
    def shifted(b, h, q, kv):
        return mask_function(b, h, q + first, kv + first)

    rule = as_mask(shifted if first else mask_function)
    assert rule is not None
    return rule


def _padding(mask: torch.Tensor, first: int, last: int, *, step: bool) -> Expr:
    """`padding[batch, key]` over the keys from first to last; keys beyond the tensor are padding. step: the table goes
    on with the keys of later steps, so that these have the same rule, and its plan.
    """
    if mask.ndim != 2:
        raise refuse(
            "regard mask",
            "padding has the wrong number of axes",
            f"attention_mask of shape {tuple(mask.shape)}",
            "(batch, keys), or a finished mask (batch, heads, queries, keys)",
            "pass attention_mask as the tokenizer returns it",
        )
    real = mask[:, first:last].bool().cpu()
    missing = last - first - real.shape[1]
    if not missing and real.all():
        return EVERYTHING
    real = (torch.nn.functional.pad(real, (0, missing)) if missing > 0 else real).numpy()
    if not real.size:
        return EVERYTHING
    if step:
        steps = STEP - 1 + -(real.shape[1] + STEP - 1) % STEP
        real = np.pad(real, ((0, 0), (0, steps)), constant_values=True)
    if real.shape[0] == 1:
        return frozen_table(real[0], "padding")[expr.key]
    return frozen_table(real, "padding")[expr.batch, expr.key]


def simplified(rule: Expr, shape: tuple[int, int, int, int], start: int) -> Expr:
    """The expression without the parts that are always true or always false for this shape, such as unused padding."""
    B, _, Q, K = shape
    if 0 in (B, Q, K) or rule is EVERYTHING:
        return rule
    if rule is CAUSAL and start + Q > 0:  # the usual one, decided without ranges
        return EVERYTHING if start >= K - 1 else rule
    ends = {"batch": (0, B - 1), "head": (0, 2**31 - 1), "query": (start, start + Q - 1), "key": (0, K - 1)}
    ranges = {name: Interval(np.array([float(lo)]), np.array([float(hi)])) for name, (lo, hi) in ends.items()}
    tables: dict = {}

    def simplify(part: Expr) -> Expr:
        known = bounds(part, ranges, tables)
        if known.lo.min() >= 1 or known.hi.max() <= 0:
            return EVERYTHING if known.lo.min() >= 1 else expr.lift(False)
        if isinstance(part, Op) and part.name in ("and", "or"):
            remaining = [arg for arg in map(simplify, part.args) if not isinstance(arg, Const)]
            return remaining[0] if len(remaining) == 1 else Op(part.name, *remaining)
        return part

    return simplify(rule)


NOT_SEPARATED = (
    "regard: the position ids are smaller than the number of earlier keys, as of packed documents, but the keys in the "
    "cache do not say to which document they belong: all are attended to. Decode one text per sequence."
)
# Of the last call, because all layers of a model have the same ones: a weak reference to the position ids, their
# version, the keys, the mask, and the rule.
_last: tuple[Any, ...] = (None, 0, 0, None, None)


def packed(position_ids, mask, rows: int, keys: int) -> Expr | None:
    """The rule that separates packed documents, or None: position ids (B, n) of this call, transformers' mask."""
    global _last
    if type(position_ids) is not torch.Tensor or position_ids.ndim != 2 or position_ids.shape[1] != rows:
        return None
    if not (mask is None or isinstance(mask, LazyMask)) or torch._C._are_functorch_transforms_active():
        return None
    uncounted = position_ids.is_inference()  # it does not count its versions; one row is separated from nothing
    if uncounted and rows > 1:
        return _separate(position_ids, mask, rows, keys)
    reference, version, of_keys, of_mask, found = _last
    now = 0 if uncounted else position_ids._version
    known = reference is not None and reference() is position_ids and version == now
    if not known or of_keys != keys or of_mask is not mask:
        found = _separate(position_ids, mask, rows, keys)
        _last = weakref.ref(position_ids), now, keys, mask, found
    return found


def _separate(ids: torch.Tensor, mask: LazyMask | None, rows: int, keys: int) -> Expr | None:
    tables = () if mask is None else mask.rule.tables
    if any(table.kind == "int" for table in tables):  # documents that transformers has separated
        return None
    padding = [table.array for table in tables if table.name == "padding"]
    if rows != keys or (mask is not None and mask.query_start):
        if not padding and mask is not None and rows == 1 and 0 <= int(ids.min()) < mask.query_start:
            warnings.warn(NOT_SEPARATED, stacklevel=2)
        return None
    if rows == 1:
        return None
    begins = (ids[:, 1:] == 0) & (ids.amax(1, keepdim=True) > 0)
    for real in padding:
        both = torch.as_tensor(real[..., 1:] & real[..., :-1], device=ids.device)
        begins = begins & both
    if not begins.any():
        return None
    numbers = torch.nn.functional.pad(begins.cumsum(1), (1, 0)).cpu()
    return documents(numbers[0] if len(numbers) == 1 else numbers)


@functools.lru_cache(64)
def _of_lengths(starts: tuple[int, ...]) -> Expr:
    """The rule that separates documents that begin there, and end where the next one begins."""
    return documents(lengths=np.diff(starts))


def by_lengths(given: Mapping[str, Any], rows: int, keys: int) -> Expr | None:
    """The rule that separates the documents of one packed row, cu_seq_lens_q and cu_seq_lens_k among the arguments of a
    call; None without them.
    """
    both = given.get("cu_seq_lens_q"), given.get("cu_seq_lens_k")
    if both[0] is both[1] is None:
        return None
    found = [() if each is None else tuple(each.tolist()) for each in both]
    starts = found[0] or found[1]
    if rows != keys or {found[0] or starts, found[1] or starts} != {starts} or (starts[0], starts[-1]) != (0, rows):
        raise refuse(
            NAME,
            "cumulative lengths do not fit the packed batch",
            f"cu_seq_lens_q={list(found[0])}, cu_seq_lens_k={list(found[1])} for {rows} rows and {keys} keys",
            f"the same starts of documents for queries and keys, from 0 to {rows}",
            "pack the whole batch into one row, as DataCollatorWithFlattening does, without a cache",
        )
    return _of_lengths(starts)
