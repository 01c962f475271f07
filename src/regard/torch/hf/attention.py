"""Any transformers model on regard: `register()`, then attn_implementation="regard".

Two functions are registered under one name: the attention, and the mask that goes with it (transformers drops causality
and padding without a word when an attention comes without its mask). What regard does not handle is refused, never
ignored.
"""

from __future__ import annotations

import functools

import torch

from ...api.attention import attention_weights
from ...common.call_hooks import watched
from ...common.dtypes import LISTED, torch_dtypes
from ...common.errors import Reason, Refused
from ...common.types import Engine
from ...engines import dispatch
from ...language.added_masks import hides, range_of
from ...language.checks.arguments import Arguments
from ...language.expr import Expr
from ...language.expr import score as the_score
from ...language.masks import causal, dense
from ...language.scores import bias
from ...language.scores import softcap as capped
from ..functional import attention
from .lazy_mask import LazyMask, between_graphs, lazy_mask
from .recorder import NAME, implementations, note, record

__all__ = ["attend", "check", "record", "register"]

DTYPES = torch_dtypes()

# Told to every attention function and without meaning for the numbers: what the model returns, and what was applied
# before.
HARMLESS = {
    "cache_params",
    "cache_position",
    "deterministic",
    "layer_idx",
    "logits_to_keep",
    "num_items_in_batch",
    "output_hidden_states",
    "output_router_logits",
    "past_key_values",
    "position_embeddings",
    "position_ids",
    "return_dict",
    "use_cache",
}

# Arguments that change the numbers and that regard does not take: what they are, and what to do.
REFUSED = {
    "cache": ("a paged cache of continuous batching", "use model.generate instead of generate_batch"),
    "indices": ("keys chosen per query by an indexer (sparse attention)", 'use attn_implementation="eager"'),
    "block_indices": (
        "key blocks chosen per query by an indexer (sparse attention)",
        'use attn_implementation="eager"',
    ),
    "sinks": ("sinks that differ per query", 'use attn_implementation="eager"'),
    **dict.fromkeys(
        ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"),
        ("a packed batch described by cumulative lengths", "pack with position_ids that start anew at each document"),
    ),
}


def register(*, engine: Engine = "auto") -> None:
    """Make attn_implementation="regard" known to transformers; calling it again changes nothing but the engine.

        regard.torch.hf.register()
        model = AutoModel.from_pretrained(folder, attn_implementation="regard")
        model.set_attn_implementation("regard")  # the same for a model that is there already

    engine: "auto", "jit", "reference" or "sdpa", for every model of the process.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, functools.partial(attend, engine=engine))
    AttentionMaskInterface.register(NAME, lazy_mask)


def check(model) -> None:
    """Refuse a model that is set to regard but whose attention code cannot get there; says nothing if all is well.

    transformers accepts any registered name for any model. Whether a call really arrived is what `record` shows.
    """
    reasons = []
    found = implementations(model)
    if found != {NAME}:
        reasons.append(
            Reason(
                "a part of the model does not run on regard",
                given=f"attn_implementation {', '.join(sorted(found))}",
                expected=f"{NAME!r} everywhere",
                fix=f"regard.torch.hf.register(); model.set_attn_implementation({NAME!r})",
            )
        )
    for kind in {type(module) for module in model.modules() if hasattr(module, "_can_set_attn_implementation")}:
        if not kind._can_set_attn_implementation():
            reasons.append(
                Reason(
                    "this model does its attention itself",
                    given=kind.__name__,
                    expected="a model that calls transformers' attention interface",
                    fix='load it with attn_implementation="eager"',
                )
            )
    if reasons:
        raise Refused("check", reasons)


@watched("regard, for transformers")
@between_graphs
def attend(
    module,
    query,
    key,
    value,
    attention_mask,
    *,
    engine="auto",
    dropout=0.0,
    scaling=None,
    is_causal=None,
    sliding_window=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    output_attentions=False,
    **kwargs,
):
    """The attention function for regard, as transformers calls it.

    out = softmax(cap(scaling · q kᵀ) + bias, over the keys that the mask allows and the sinks) v

    query (B, H, Q, D) · key (B, G, K, D) · value (B, G, K, E) -> (out (B, Q, H, E), weights), with gradients for all of
    them, for s_aux and for position_bias. Inside torch.autocast, query, key and value are taken in its dtype.
    attention_mask: a `LazyMask`; a tensor that broadcasts to (B, H, Q, K), booleans (true means "may attend") or floats
    that are added; or None. Added values of half the smallest number and below mean "may not attend". None is causal
    for a causal module with more than one row, the first row at the first key (so a static cache is filled), and
    everything otherwise.
    scaling: by default 1/√D. softcap: c · tanh(s / c). s_aux (H,): sinks. position_bias: floats that are added, (1 or
    B, H, Q, K).
    dropout: the share of weights that fall out while the module trains; the seed is drawn from torch's generator, so
    that manual_seed and gradient checkpointing repeat them.
    weights: the whole matrix (B, H, Q, K) where output_attentions is asked for, None otherwise.

    A row that may attend nothing, such as left padding, gives 0 (the models' own code gives the mean of all values).

    Refused, all reasons at once: 8-bit models, paged caches, sparse indices, sinks per query, a window without a mask,
    masks that do not fit, and arguments that nobody knows to be harmless.
    """
    if query.shape[0] == 1 and key.shape[0] > 1:  # learned queries, one set for the whole batch
        query = query.expand(key.shape[0], -1, -1, -1)
    reasons = _unfit(query, key, value, kwargs)
    if reasons:
        raise Refused(NAME, reasons)
    grid = (*query.shape[:3], key.shape[2])
    score = the_score if softcap is None else capped(float(softcap))
    causes = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask, score, start = _rule(attention_mask, grid, bool(causes), sliding_window, score, reasons)
    if position_bias is not None:
        allowed, score = _added(position_bias, "position_bias", grid, start, score, reasons)
        mask = allowed if mask is None else mask if allowed is None else mask & allowed
    if s_aux is not None and s_aux.numel() != grid[1]:
        reasons.append(
            Reason(
                "sinks do not fit the heads",
                given=f"s_aux of shape {tuple(s_aux.shape)}",
                expected=f"one per head ({grid[1]},)",
                fix='use attn_implementation="eager"',
            )
        )
    if reasons:
        raise Refused(NAME, reasons)
    query, key, value = _in_autocast(query, key, value)
    sinks = None if s_aux is None else s_aux.reshape(-1)
    asked = Arguments(mask, None if score is the_score else score, scaling, start, sinks)
    rules = {name: getattr(asked, name) for name in ("mask", "score", "scale", "query_start", "sinks")}
    if dropout and module.training:
        asked = asked._replace(dropout=dropout, seed=_seed())
    sources = (query, key, value, sinks, position_bias, attention_mask)
    learns = torch.is_grad_enabled() and any(getattr(source, "requires_grad", False) for source in sources)
    if learns:
        # Models view the result as (B, Q, H · E).
        out = attention(query, key, value, **asked._asdict(), engine=engine).transpose(1, 2).contiguous()
    else:
        B, H, Q, _ = grid
        out = query.new_empty(B, Q, H, value.shape[3])
        dispatch.attend(query, key, value, asked, engine, out=out.transpose(1, 2), where=NAME)
    note(module, query, key, rules)
    return out, _weights(query, key, asked, learns, engine) if output_attentions else None


def _unfit(query, key, value, kwargs) -> list[Reason]:
    """What no part of this call may be."""
    reasons = []
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dtype not in DTYPES:
            reasons.append(
                Reason(
                    f"the model's {name} has a dtype that regard does not take",
                    given=str(tensor.dtype),
                    expected=LISTED,
                    fix="model.float()",
                )
            )
    for name, found in kwargs.items():
        if found is None or name in HARMLESS:
            continue
        what, mend = REFUSED.get(name, ("an argument that regard does not know", 'use attn_implementation="eager"'))
        reasons.append(
            Reason(
                f"regard does not take {name}",
                given=what,
                expected="arguments that do not change the numbers, or that regard handles",
                fix=mend,
            )
        )
    return reasons


def _in_autocast(*tensors: torch.Tensor):
    """The tensors in the dtype of torch.autocast where one is open, as its own attention takes them."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    return [
        tensor if tensor.dtype is torch.float64 else tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors
    ]


def _seed() -> int:
    return int(torch.randint(2**63 - 1, ()))


def _rule(mask, grid, causes: bool, window, score: Expr, reasons: list[Reason]) -> tuple[Expr | None, Expr, int]:
    """What transformers' mask means -> (mask, score, query_start)."""
    B, _, Q, K = grid
    if mask is None:
        if window is not None and window < K:
            reasons.append(
                Reason(
                    "a window without a mask",
                    given=f"sliding_window={window} for {K} keys and attention_mask=None",
                    expected="the mask that goes with the window",
                    fix="let transformers build the mask: pass attention_mask (batch, keys), or leave it out",
                )
            )
        return (causal(), score, 0) if causes and Q > 1 else (None, score, K - Q)
    if isinstance(mask, LazyMask):
        if (
            mask.everything and mask.shape[2] in (1, Q) and mask.shape[3] in (1, K)
        ):  # stretches as the models' own mask does
            return None, score, K - Q
        if tuple(mask.shape[2:]) != (Q, K) or mask.shape[0] not in (1, B):
            reasons.append(
                Reason(
                    "the mask was made for another shape",
                    given=f"{list(mask.shape)}",
                    expected=f"(batch, 1, rows, keys) = {[B, 1, Q, K]}",
                    fix='report it with the name of the model; until then use attn_implementation="eager"',
                )
            )
        return mask.rule, score, mask.query_start
    if not isinstance(mask, torch.Tensor) or not (mask.dtype is torch.bool or mask.dtype.is_floating_point):
        shown = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, torch.Tensor) else type(mask).__name__
        reasons.append(
            Reason(
                "not a mask",
                given=shown,
                expected="booleans (true means may attend), or floats that are added to the scores",
                fix="convert it: mask.bool()",
            )
        )
        return None, score, K - Q
    if mask.dtype is torch.bool:
        return (dense(mask, query_start=K - Q) if _fits(mask, "attention_mask", grid, reasons) else None), score, K - Q
    return *_added(mask, "attention_mask", grid, K - Q, score, reasons), K - Q


def _added(tensor, name: str, grid, start: int, score: Expr, reasons: list[Reason]) -> tuple[Expr | None, Expr]:
    """Floats that are added to the scores -> (mask or None, score). Values at the floor of the dtype are a mask."""
    if not _fits(tensor, name, grid, reasons):
        return None, score
    allowed = ~hides(tensor.detach(), range_of(tensor.dtype))
    if not bool(((tensor == 0) | ~allowed).all()):
        score = bias(tensor, score, start)
    return (None if bool(allowed.all()) else dense(allowed, query_start=start)), score


def _fits(tensor, name: str, grid, reasons: list[Reason]) -> bool:
    fits = tensor.ndim <= 4 and all(a in (1, b) for a, b in zip(tensor.shape[::-1], grid[::-1], strict=False))
    if not fits:
        reasons.append(
            Reason(
                f"{name} does not fit",
                given=f"{list(tensor.shape)}",
                expected=f"something that broadcasts to (B, H, Q, K) = {list(grid)}",
                fix=f"cut {name} to the rows and keys of this call",
            )
        )
    return fits


def _weights(query, key, asked: Arguments, learns: bool, engine: Engine) -> torch.Tensor:
    """The whole matrix; with gradients it is the attention whose values are the unit vectors."""
    if not learns:
        return attention_weights(query, key, **asked._asdict())
    K = key.shape[2]
    unit = torch.eye(K, dtype=query.dtype, device=query.device)
    return attention(query, key, unit.expand(*key.shape[:2], K, K), **asked._asdict(), engine=engine)
