"""The mask that a transformers model carries around: the rule itself, never its n × n truth values.

transformers builds masks by calling the function that is registered for an attention implementation. `lazy_mask` is
that function for regard. Its answer passes through the model untouched, and the attention function reads the rule from
it. Models that would compute with it do their attention themselves and must not have it: they are refused.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from ...common.errors import Reason, Refused
from ...language import expr
from ...language.analysis import bounds
from ...language.callables import as_mask
from ...language.expr import Const, Expr, Op, frozen_table
from ...language.intervals import Interval

__all__ = ["LazyMask", "between_graphs", "lazy_mask"]


def between_graphs(function):
    """The function as it is; in a model under torch.compile it runs between two compiled graphs, never inside one."""
    outside = torch.compiler.disable(function)

    @functools.wraps(function)
    def either(*args, **kwargs):
        return (outside if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return either


class NoSuchAttribute(Refused, AttributeError):
    """A refusal that `hasattr` and `copy` take as the plain answer no."""


def _refusal(what: str, kind=Refused) -> Refused:
    return kind(
        "regard mask",
        [
            Reason(
                "the model computes with its mask instead of handing it to the attention function",
                given=what,
                expected="a model that calls transformers' attention interface, which alone may read the mask",
                fix=(
                    'load this model with attn_implementation="eager": its own attention code does not go '
                    "through the interface"
                ),
            )
        ],
    )


class LazyMask:
    """Which keys each row may attend, as an expression: `rule` over batch, head, query, key.

    Row i stands at position query_start + i of the key axis, as everywhere in regard. It has the shape (B, 1, Q, K) of
    the mask that it stands for, and can be moved, copied and cut along rows, or along keys from the first. Everything
    else is refused.
    """

    ndim = 4
    dtype = torch.bool
    requires_grad = False

    def __init__(
        self, rule: Expr, shape: tuple[int, int, int, int], query_start: int, device: torch.device | str = "cpu"
    ):
        self.rule, self.shape, self.query_start = rule, torch.Size(shape), query_start
        self.device = torch.device(device)

    @property
    def everything(self) -> bool:
        """Whether every row may attend every key."""
        return isinstance(self.rule, Const) and self.rule.value is True

    def size(self, dim: int | None = None):
        """The shape, or one axis of it."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """4, as of the tensor that it stands for."""
        return self.ndim

    def contiguous(self) -> LazyMask:
        """Itself: there is no memory to arrange."""
        return self

    def clone(self) -> LazyMask:
        """Itself: the rule is frozen."""
        return self

    def to(self, *args, **kwargs) -> LazyMask:
        """Itself, on another device; conversion to another dtype is computing with it, and refused."""
        named = [*args, *kwargs.values()]
        if any(isinstance(part, torch.dtype) and part is not torch.bool for part in named):
            raise _refusal(f"mask.to({', '.join(map(str, named))})")
        devices = [part for part in named if isinstance(part, torch.device | str)]
        return LazyMask(self.rule, tuple(self.shape), self.query_start, *devices[:1]) if devices else self

    def __getitem__(self, index) -> LazyMask:
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in [part for part in index if not isinstance(part, torch.Tensor)]:
            at = index.index(Ellipsis)
            index = index[:at] + (slice(None),) * (5 - len(index)) + index[at + 1 :]
        index += (slice(None),) * (4 - len(index))
        if len(index) != 4 or not all(isinstance(part, slice) for part in index):
            raise _refusal(f"mask[{index}]")
        cuts = [range(*part.indices(size)) for part, size in zip(index, self.shape, strict=True)]
        whole = all(len(cut) == size for cut, size in zip(cuts[:2], self.shape[:2], strict=True))
        if not whole or any(cut.step != 1 for cut in cuts) or (cuts[3].start and len(cuts[3])):
            raise _refusal(f"mask[{', '.join(map(str, index))}]")
        return LazyMask(
            self.rule, (*self.shape[:2], len(cuts[2]), len(cuts[3])), self.query_start + cuts[2].start, self.device
        )

    def __getattr__(self, name: str):
        raise _refusal(f"mask.{name}", NoSuchAttribute)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise _refusal(f"torch.{getattr(function, '__name__', function)}(…, mask, …)")

    __hash__ = object.__hash__

    def __repr__(self):
        return f"<mask {self.rule!r} of shape {list(self.shape)}, first query at {self.query_start}>"


def _refusing(name: str):
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
    setattr(LazyMask, _name, _refusing(_name))


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
    """The mask function for regard: transformers' rule and padding as one expression.

    transformers counts absolute positions: row i is q_offset + i, key j is kv_offset + j (a sliding cache has dropped
    the keys before). regard counts keys from 0, so the row stands at q_offset + i - kv_offset and kv_offset is added
    back for the rule.

    mask_function(b, h, q, kv) is traced. attention_mask: None, booleans (B, n) that say which keys are no padding (keys
    beyond n are padding), or a mask that was made before. What other implementations are told in `kwargs` (skips,
    dtype, vmap) does not change the meaning.
    """
    if isinstance(attention_mask, LazyMask):
        return attention_mask
    first = int(kv_offset)
    shape = (batch_size, 1, int(q_length), int(kv_length))
    rule = (
        expr.lift(True)
        if mask_function is None
        else as_mask(_shifted(mask_function, first) if first else mask_function)
    )
    assert rule is not None
    if attention_mask is not None:
        rule = rule & _padding(attention_mask, first, first + shape[3])
    start = int(q_offset) - first
    return LazyMask(_settled(rule, shape, start), shape, start, device)


def _shifted(mask_function, first: int):
    def rule(b, h, q, kv):
        return mask_function(b, h, q + first, kv + first)

    return rule


def _padding(mask: torch.Tensor, first: int, last: int) -> Expr:
    """`padding[batch, key]` over the keys from first to last; what lies beyond the tensor is padding."""
    if mask.ndim != 2:
        raise Refused(
            "regard mask",
            [
                Reason(
                    "padding has the wrong number of axes",
                    given=f"attention_mask of shape {tuple(mask.shape)}",
                    expected="(batch, keys), or a finished mask (batch, heads, queries, keys)",
                    fix="pass attention_mask as the tokenizer made it",
                )
            ],
        )
    seen = mask[:, first:last].bool().cpu()
    seen = torch.nn.functional.pad(seen, (0, last - first - seen.shape[1])).numpy()
    if not seen.size:
        return expr.lift(True)
    if seen.shape[0] == 1:
        return frozen_table(seen[0], "padding")[expr.key]
    return frozen_table(seen, "padding")[expr.batch, expr.key]


def _settled(rule: Expr, shape: tuple[int, int, int, int], start: int) -> Expr:
    """The rule without the parts that are always true or never true on this grid, such as padding where there is
    none.
    """
    B, _, Q, K = shape
    if 0 in (B, Q, K):
        return rule
    ends = {"batch": (0, B - 1), "head": (0, 2**31 - 1), "query": (start, start + Q - 1), "key": (0, K - 1)}
    ranges = {name: Interval(np.array([float(lo)]), np.array([float(hi)])) for name, (lo, hi) in ends.items()}
    tables: dict = {}

    def settle(part: Expr) -> Expr:
        known = bounds(part, ranges, tables)
        if known.lo.min() >= 1 or known.hi.max() <= 0:
            return expr.lift(bool(known.lo.min() >= 1))
        if isinstance(part, Op) and part.name in ("and", "or"):
            kept = [arg for arg in map(settle, part.args) if not isinstance(arg, Const)]
            return kept[0] if len(kept) == 1 else Op(part.name, *kept)
        return part

    return settle(rule)
