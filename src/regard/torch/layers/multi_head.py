"""A drop-in replacement for torch.nn.MultiheadAttention: the same arguments, shapes, masks and state dict."""

from __future__ import annotations

import functools
import math
import types
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import linear, pad
from torch.nn.utils.parametrize import is_parametrized

from ...common.text.keywords import known_arguments
from ...language.added_masks import hides
from ...language.expr import Expr, frozen_table, key
from ...language.masks import causal, dense
from ...language.scores import bias
from ..functional import attention
from .parts import Checks, allowed_pairs, dropped, join_heads, split_heads, weights


@known_arguments
class MultiHeadAttention(torch.nn.MultiheadAttention):
    """A drop-in replacement for torch.nn.MultiheadAttention whose attention is computed by regard.

    out = concat over h of softmax(Q_h K_hᵀ / √D + masks) V_h, times W_oᵀ + b_o;  Q = query W_qᵀ + b_q, K and V likewise

    The constructor, the parameters and their initialization are torch's, and state dicts load in both directions.
    Masks have torch's meaning: true means "may not attend", floats are added. `attn_mask` may also be an expression,
    such as rg.window(256), where true means "may attend". docs/how-to/layers.md lists the differences from torch.

    Args:
        embed_dim: the width of the queries and of the output.
        num_heads: H, the number of heads, a divisor of embed_dim.
        dropout: the probability that a weight is dropped in training mode.
        bias: whether the projections have a bias.
        add_bias_kv: whether a learned key and value are appended.
        add_zero_attn: whether a key and value of zeros are appended.
        kdim: the width of the keys' input; None means embed_dim.
        vdim: the width of the values' input; None means embed_dim.
        batch_first: whether the layout is (N, rows, width) instead of (rows, N, width).
        device: the device of the parameters.
        dtype: the dtype of the parameters.

    Raises:
        Refused: sizes that do not fit or an invalid dropout rate; the error lists every problem.

    Source:
        Vaswani et al. 2017, section 3.2.2.

    Examples:
        >>> import torch
        >>> from regard.torch import MultiHeadAttention
        >>> layer = MultiHeadAttention(16, 4, batch_first=True)
        >>> x = torch.randn(2, 10, 16)
        >>> out, weights = layer(x, x, x)
        >>> out.shape, weights.shape
        (torch.Size([2, 10, 16]), torch.Size([2, 10, 10]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check = Checks("MultiHeadAttention")
        width, heads = check.size("embed_dim", embed_dim), check.size("num_heads", num_heads)
        check.need(
            width % heads == 0,
            "num_heads do not divide embed_dim",
            f"embed_dim={embed_dim}, num_heads={num_heads}",
            "embed_dim to be a multiple of num_heads",
            "change num_heads or embed_dim",
        )
        for name, size in (("kdim", kdim), ("vdim", vdim)):
            if size is not None:
                check.size(name, size)
        check.rate("dropout", dropout)
        check.done()
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        self._attend_by_regard()

    def _attend_by_regard(self) -> None:
        # torch's encoder layer calls a layer that has a hook; otherwise it computes with its parameters itself.
        self.register_forward_pre_hook(_called)
        self.attend = attention

    @classmethod
    def of(cls, theirs: torch.nn.MultiheadAttention) -> MultiHeadAttention:
        """Converts a layer of torch, which keeps its parameters: an existing optimizer continues to update them.

        Parametrizations (torch.nn.utils.parametrize, weight_norm, spectral_norm), pruning and hooks act on the new
        layer as on the old one.

        Args:
            theirs: the layer of torch.

        Returns:
            A layer with the same settings, parameters, hooks and mode.

        Raises:
            Refused: what is not this layer of torch, or computes attention in a way of its own (a subclass with another
                `forward`, such as torch's quantizable layer).

        Examples:
            >>> theirs = torch.nn.MultiheadAttention(16, 4)
            >>> MultiHeadAttention.of(theirs).in_proj_weight is theirs.in_proj_weight
            True
        """
        _check_convertible(cls, theirs)
        kind = cls
        if is_parametrized(theirs):  # the names of such parameters are properties of a class made for this layer
            properties = {name: value for name, value in vars(type(theirs)).items() if isinstance(value, property)}
            kind = types.new_class(f"Parametrized{cls.__name__}", (cls,), {}, lambda names: names.update(properties))
        made = kind.__new__(kind)
        for name, value in vars(theirs).items():
            made.__dict__[name] = value.copy() if isinstance(value, dict) else value
        if not isinstance(theirs, MultiHeadAttention):
            made._attend_by_regard()
        return made

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | Expr | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Computes the output and, where requested, the weights, as torch.nn.MultiheadAttention does.

        Args:
            query: (N, L, embed_dim) with `batch_first`, otherwise (L, N, embed_dim); or (L, embed_dim).
            key: (N, S, kdim) with `batch_first`, otherwise (S, N, kdim); or (S, kdim).
            value: the same layout with width vdim.
            key_padding_mask: (N, S) or (S,); booleans (true means "may not attend") or floats that are added.
            need_weights: whether to return the weights, which need memory that grows with L·S.
            attn_mask: (L, S) or (N·H, L, S) booleans (true means "may not attend") or floats that are added; or an
                expression.
            average_attn_weights: whether the weights are averaged over the heads.
            is_causal: whether the mask is causal; `attn_mask` is then not read and may be None.

        Returns:
            out in the layout of `query`, and weights (N, L, S), or (N, H, L, S) without averaging, before dropout and
            differentiable; None without `need_weights`.

        Raises:
            Refused: shapes or masks that do not fit; the error lists every problem.
        """
        if query.is_nested:
            return self._nested(
                query,
                key,
                value,
                key_padding_mask,
                need_weights=need_weights,
                attn_mask=attn_mask,
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
            )
        self._check(query, key, value, key_padding_mask, attn_mask)
        batched = query.ndim == 3
        q, k, v = self._projected(query, key, value)
        if not batched:
            q, k, v = q[None], k[None], v[None]
        elif not self.batch_first:
            q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        masks = self._masks(k, key_padding_mask, attn_mask, is_causal)
        q, k, v = (split_heads(part, part.shape[-1] // self.head_dim) for part in (q, *self._extended(k, v)))
        joined = join_heads(self.attend(q, k, v, **masks.rules(), **dropped(self.dropout, self.training)))
        out = self.out_proj(joined if self.batch_first or not batched else joined.transpose(0, 1))
        if not need_weights:
            return out if batched else out[0], None
        matrix = weights(q, k, *masks.tensors((*q.shape[:3], k.shape[2]), q.device))
        matrix = matrix.mean(1) if average_attn_weights else matrix
        return (out, matrix) if batched else (out[0], matrix[0])

    def _projected(self, query, key, value) -> list[torch.Tensor]:
        """Projected queries, keys and values; a single product if all three inputs are the same tensor."""
        packed = self.in_proj_weight
        matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if packed is None else packed.chunk(3)
        # As torch's layer with batch_first, which adds a bias of another dtype to the products.
        added = None if self.in_proj_bias is None else self.in_proj_bias.to(matrices[0].dtype)
        if packed is not None and query is key is value:
            return list(linear(query, packed, added).chunk(3, -1))
        biases = (None,) * 3 if added is None else added.chunk(3)
        return [linear(rows, *both) for rows, *both in zip((query, key, value), matrices, biases, strict=True)]

    def _extended(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (N, S, embed_dim) with bias_k, bias_v and zeros appended, as configured."""
        N, _, width = k.shape
        if self.bias_k is not None:
            k, v = (
                torch.cat([part, more.to(part).expand(N, 1, width)], 1)
                for part, more in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = (torch.cat([part, part.new_zeros(N, 1, width)], 1) for part in (k, v))
        return k, v

    def _masks(self, k: torch.Tensor, padding, mask, is_causal: bool) -> TorchMasks:
        """The masks of a call whose keys are (N, S, embed_dim)."""
        N, S, _ = k.shape
        rule = causal() if is_causal else mask if isinstance(mask, Expr) else None
        given = []
        if isinstance(mask, torch.Tensor) and not is_causal:
            given.append(mask.view(N, self.num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask[None, None])
        if padding is not None:
            given.append(padding.view(N, 1, 1, S))
        return TorchMasks(rule, given, S, (self.bias_k is not None) + self.add_zero_attn)

    def _check(self, query, key, value, padding, mask) -> None:
        """Raises `Refused` with every shape and mask that does not fit."""
        check = Checks("MultiHeadAttention")
        first = 0 if self.batch_first else 1
        layout = "(N, rows, width), or (rows, width)" if self.batch_first else "(rows, N, width), or (rows, width)"
        shown = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
        check.need(
            query.ndim == key.ndim == value.ndim and query.ndim in (2, 3),
            "the arguments differ in number of axes, or have too many",
            shown,
            layout,
            "add or remove the batch axis of all three",
        )
        for name, rows, width in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            check.need(
                rows.shape[-1] == width,
                f"{name} does not have the width of the layer",
                shown,
                f"{width} on the last axis of {name}",
                "check the last axis, and embed_dim, kdim and vdim of the layer",
            )
        check.done()
        check.need(
            key.shape[:-1] == value.shape[:-1],
            "key and value differ in rows or batch",
            shown,
            "one value for each key",
            f"check the layout: {layout}",
        )
        N = query.shape[first] if query.ndim == 3 else 1
        check.need(
            query.ndim == 2 or key.shape[first] == N,
            "query and key differ in batch",
            shown,
            f"N = {N}",
            f"batch_first={self.batch_first}: the layout is {layout}",
        )
        L, S = (rows.shape[-2 if self.batch_first else 0] for rows in (query, key))
        for name, given, shapes in (
            ("key_padding_mask", padding, [(N, S)] if query.ndim == 3 else [(S,)]),
            ("attn_mask", None if isinstance(mask, Expr) else mask, [(L, S), (N * self.num_heads, L, S)]),
        ):
            if given is None:
                continue
            check.need(
                given.dtype == torch.bool or given.is_floating_point(),
                f"{name} has an unsupported dtype",
                f"{given.dtype}",
                "booleans (true means may not attend) or floats (added)",
                f'pass {name} == 0 if 1 means "may attend", as tokenizers return it, or {name} != 0 if 1 means '
                '"may not attend"',
            )
            if tuple(given.shape) not in shapes:  # torch.compile cannot trace how sizes that it leaves open are joined
                check.need(
                    False,
                    f"{name} does not fit",
                    f"{tuple(given.shape)}",
                    " or ".join(map(str, shapes)),
                    f"check the sizes: L = {L} queries, S = {S} keys, N = {N}, {self.num_heads} heads",
                )
        check.done()

    def _nested(self, query, key, value, padding, **rest):
        """Nested tensors, as torch's encoder passes them: padded, then converted back. rest: as in `forward`."""
        check = Checks("MultiHeadAttention")
        check.need(
            query is key is value,
            "nested tensors are supported for self-attention only",
            "query, key and value that are not the same tensor",
            "self-attention",
            "pass padded tensors and a key_padding_mask",
        )
        check.need(
            padding is None,
            "nested tensors have no padding",
            "a key_padding_mask",
            "key_padding_mask=None",
            "omit key_padding_mask",
        )
        check.need(
            self.batch_first,
            "nested tensors need batch_first=True",
            "batch_first=False",
            "batch_first=True",
            "construct the layer with batch_first=True",
        )
        check.done()
        rows = query.to_padded_tensor(0.0)
        lengths = torch.tensor([len(part) for part in query.unbind()], device=rows.device)
        padding = torch.arange(rows.shape[1], device=rows.device) >= lengths[:, None]
        out, matrix = self(rows, rows, rows, padding, **rest)
        return torch._nested_tensor_from_mask(out, ~padding), matrix


def _check_convertible(cls: type[MultiHeadAttention], theirs) -> None:
    """Raises `Refused` for what `cls.of` cannot convert."""
    check = Checks("MultiHeadAttention.of")
    check.need(
        isinstance(theirs, torch.nn.MultiheadAttention),
        "this is not torch's layer",
        type(theirs).__name__,
        "a torch.nn.MultiheadAttention",
        "convert the layer inside it, or build a MultiHeadAttention and load the state dict",
    )
    check.done()
    usual = torch.nn.MultiheadAttention.forward, MultiHeadAttention.forward, cls.forward
    check.need(
        "forward" not in vars(theirs) and type(theirs).forward in usual,
        "the layer computes in a way of its own",
        f"{type(theirs).__module__}.{type(theirs).__qualname__}, which has another forward",
        "the forward of torch.nn.MultiheadAttention",
        "keep this layer, or call regard.torch.attention in its forward",
    )
    check.done()


def _called(module: torch.nn.Module, args: tuple) -> None:
    """A hook that does nothing."""


ANY = math.inf  # as in torch, only −inf masks a key: finite values are added, however low
SMALL = 1 << 18  # masks with at most so many elements are compared by content


class TorchMasks(NamedTuple):
    """The masks of a call.

    rule: the mask as an expression; row i is at position i. given: tensors that broadcast to (N, H, L, S), booleans
    (true means "may not attend") or floats (added to the logits). keys: S. extra: the number of appended keys, which
    no mask covers and every row may attend to.
    """

    rule: Expr | None
    given: list[torch.Tensor]
    keys: int
    extra: int

    def rules(self) -> dict[str, Any]:
        """The arguments mask, score and query_start of attention."""
        transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
        mask, score = self._tensors() if transformed else self._expressions()
        return {"mask": mask, "score": score, "query_start": 0}

    def _expressions(self) -> tuple[Expr | None, Expr | None]:
        """Mask and score as expressions; −inf also becomes part of the mask, so that the plan skips those pairs."""
        mask, score = self._whole(), None
        for part in self._padded():
            mask = _rule(mask, _allowed(part))
            if not _hides_only(part):
                score = bias(part, query_start=0) if score is None else bias(part, score, query_start=0)
        return mask, score

    def _tensors(self) -> tuple[Expr | torch.Tensor | None, torch.Tensor | None]:
        """One mask (expression or tensor) and one score tensor, for compiled and transformed calls."""
        whole, parts = self._whole(), self._padded()
        hidden = [part for part in parts if part.dtype == torch.bool]
        added = [part for part in parts if part.dtype != torch.bool]
        if whole is not None:
            added += [torch.zeros(part.shape, device=part.device).masked_fill(part, -math.inf) for part in hidden]
            hidden = []
        allowed = ~functools.reduce(torch.logical_or, hidden) if hidden else whole
        return allowed, functools.reduce(torch.add, added) if added else None

    def tensors(self, shape: tuple[int, int, int, int], device) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The allowed pairs and the numbers added to the logits, for shape (N, H, L, S + extra)."""
        mask, parts = self._whole(), self._padded()
        allowed = [] if mask is None else [allowed_pairs(mask, shape, 0, device)]
        allowed += [_allowed(part) for part in parts]
        added = [part for part in parts if part.dtype != torch.bool]
        both = functools.reduce(torch.logical_and, allowed) if allowed else None
        return both, functools.reduce(torch.add, added) if added else None

    def _whole(self) -> Expr | None:
        return self.rule | (key >= self.keys) if self.rule is not None and self.extra else self.rule

    def _padded(self) -> list[torch.Tensor]:
        parts = [part for part in self.given if part.numel()]  # empty masks have no effect
        return [pad(part, (0, self.extra)) for part in parts] if self.extra else parts


def _allowed(part: torch.Tensor) -> torch.Tensor:
    return ~part if part.dtype == torch.bool else ~hides(part.detach(), ANY)


def _hides_only(part: torch.Tensor) -> bool:
    """Whether a mask only masks and adds nothing: torch's layers convert boolean masks to floats of 0 and −inf."""
    if part.dtype == torch.bool or part.requires_grad or part.device.type != "cpu":
        return part.dtype == torch.bool
    return bool(((part == 0) | hides(part, ANY)).all())


def _rule(mask: Expr | None, allowed: torch.Tensor) -> Expr:
    """The conjunction of a mask and allowed pairs; equal contents give the same expression, so layers share a plan."""
    if allowed.device.type == "cpu" and allowed.numel() <= SMALL:
        return _cached(mask, allowed.numpy().tobytes(), tuple(allowed.shape))
    other = dense(allowed, query_start=0)
    return other if mask is None else mask & other


@functools.lru_cache(32)
def _cached(mask: Expr | None, content: bytes, shape: tuple[int, ...]) -> Expr:
    other = dense(frozen_table(np.frombuffer(content, bool).reshape(shape), "mask"), query_start=0)
    return other if mask is None else mask & other
