"""The attention function for transformers models: `register()`, then attn_implementation="regard".

Two functions are registered under one name, the attention and its mask: transformers silently drops causality and
padding when an attention function has no mask function. Unsupported arguments raise `Refused`; none is ignored.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...api.attention import attention_weights
from ...common.call_hooks import watched
from ...common.dtypes import LISTED, torch_dtypes
from ...common.errors import Reason, Refused
from ...common.public import Engine
from ...engines import direct
from ...engines.array_rules import in_rows, is_small
from ...engines.fast_path import ROWS_FIRST
from ...language import expr
from ...language.added_masks import hides, how_to_pass, range_of
from ...language.analysis import substituted
from ...language.checks.arguments import Arguments
from ...language.expr import Expr
from ...language.expr import score as the_score
from ...language.masks import causal, dense
from ...language.scores import bias
from ...language.scores import softcap as capped
from ...language.selected_keys import selected_keys
from ...observe.recorder import NAME, changed, listened, note, record
from ..functional import attention, attention_rows_first, in_autocast
from ..invariance import Invariant
from .cache import use_growing_layers
from .continuous_batching import Requests, admit
from .divided import DividedMask, current, divided, divided_reasons, head_start, mask_for, problems
from .lazy_mask import LazyMask, between_graphs, by_lengths, packed, simplified
from .readiness import check, unsupported
from .stored_cache import StoredRows

__all__ = ["attend", "check", "record", "register"]

DTYPES = torch_dtypes()
_range_of = functools.cache(range_of)
REST = Arguments()[3:]


def register(*, engine: Engine = "auto") -> None:
    """Registers attn_implementation="regard" with transformers; calling it again only changes the engine.

    Pass attn_implementation="regard" to `from_pretrained`, or call model.set_attn_implementation("regard") on an
    existing model.

    Args:
        engine: "auto", "jit", "reference" or "sdpa", for every model of the process.

    Returns:
        None.

    Examples:
        >>> import torch
        >>> from transformers import AutoModel, BertConfig
        >>> from regard.torch.hf import register
        >>> register()
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = AutoModel.from_config(config, attn_implementation="regard")
        >>> model(torch.zeros(1, 3, dtype=torch.long)).last_hidden_state.shape
        torch.Size([1, 3, 8])
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, functools.partial(attend, engine=engine))
    AttentionMaskInterface.register(NAME, mask_for)
    use_growing_layers()
    admit()


@watched("regard, for transformers")
@between_graphs
def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: LazyMask | torch.Tensor | None,
    *,
    engine: Engine = "auto",
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    output_attentions: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The attention function that transformers calls for attn_implementation="regard".

    out = softmax(cap(scaling · q kᵀ) + bias, over the allowed keys and the sinks) v

    Under torch.autocast, `query`, `key` and `value` are cast to its dtype. Fully masked rows, such as left padding,
    give 0 (the models' own code gives the mean of all values).

    Args:
        module: the attention module of the model.
        query: (B, H, Q, D); a batch of 1 is broadcast.
        key: (B, G, K, D).
        value: (B, G, K, E).
        attention_mask: the mask of transformers for regard; or booleans (true means "may attend") or floats to add
            that broadcast to (B, H, Q, K), where floats of half the dtype's minimum or less mask the key. With None,
            a causal module with more than one row is causal from the first key on (so a static cache is filled), and
            otherwise every key is allowed.
        engine: "auto", "jit", "reference" or "sdpa".
        dropout: the probability that a weight is dropped while the module is in training mode; the seed is drawn from
            torch's generator, so manual_seed and gradient checkpointing reproduce it.
        scaling: the factor of q·k; None means 1/√D.
        is_causal: whether None as `attention_mask` means causal; None means module.is_causal.
        sliding_window: the window of the layer, which the mask must already contain.
        softcap: c, caps the scores by c · tanh(s / c).
        s_aux: (H,) sinks, logits that are added to the denominator only.
        position_bias: (1 or B, H, Q, K) floats that are added to the scores.
        indices: (B, Q, n) numbers of the keys that each row attends to, as indexers of sparse attention select them.
        output_attentions: whether to return the weights; None means if the model collects them, or its configuration
            says so.
        kwargs: arguments without effect on the result, which belong to other parts of the model, or None.

    Returns:
        out (B, Q, H, E), and the weights (B, H, Q, K) with `output_attentions`, otherwise None. Both are
        differentiable in query, key, value, s_aux and position_bias.

    Raises:
        Refused: 8-bit tensors, sinks per query, a window without a mask, masks that do not fit, or unknown arguments;
            the error lists every problem.

    Examples:
        >>> import torch
        >>> from regard.torch.hf import attend
        >>> module = torch.nn.Module()
        >>> q = k = v = torch.zeros(1, 2, 3, 8)
        >>> out, weights = attend(module, q, k, v, None, is_causal=True, output_attentions=True)
        >>> out.shape, weights[0, 0].tolist()[0]
        (torch.Size([1, 3, 2, 8]), [1.0, 0.0, 0.0])
    """
    requests = Requests.taken_from(module, kwargs)
    weights_wanted, unknown = wanted(module, output_attentions), unsupported(kwargs)
    rate = dropout if module.training else 0.0
    mesh = divided(module)
    sequence = current.get()
    if sequence is not None:
        uncomputed = {"output_attentions": weights_wanted, "position_bias": position_bias, "s_aux": s_aux}
        uncomputed |= {
            "indices": indices,
            "recording": listened(),
            "tensor parallel": mesh,
            "cu_seq_lens_q": kwargs.get("cu_seq_lens_q"),
        }
        reasons = [*_unsupported_dtypes(query, key, value), *unknown]
        reasons += divided_reasons(sequence, attention_mask, kwargs, uncomputed)
        rules = Arguments(getattr(attention_mask, "rule", None), None if softcap is None else capped(softcap), scaling)
        rules = _with_dropout(rules, rate)
        return sequence.attention(in_autocast(query, key, value), rules, reasons).transpose(1, 2).contiguous(), None
    if requests is not None:
        uncomputed = {"position_bias": position_bias, "indices": indices, "output_attentions": weights_wanted or None}
        uncomputed |= {"dropout": rate or None, "tensor parallel": mesh}
        reasons = [*unknown, *_not_in_batches(uncomputed), *_unsupported_dtypes(query, key, value)]
        if reasons:
            raise Refused(NAME, reasons)
        rules = Arguments(None, None if softcap is None else capped(float(softcap)), scaling, None, s_aux)
        return requests.attention(query, key, value, rules, engine), None
    ids = kwargs.get("position_ids")
    sizes = query.shape[2], key.shape[2]
    separate = by_lengths(kwargs, *sizes) if kwargs else None
    if separate is None and ids is not None:
        separate = packed(ids, attention_mask, *sizes)
    special = separate is not None or indices is not None or weights_wanted or rate
    special = special or (attention_mask is None and _causal(module, is_causal))
    begins = attention_mask.begins if Invariant.active and isinstance(attention_mask, LazyMask) else ()
    special = special or any(begins) or type(key) is StoredRows
    if mesh is None and not special and softcap is s_aux is sliding_window is None and not unknown:
        out = _like_an_earlier_one(query, key, value, attention_mask, position_bias, engine=engine, scaling=scaling)
        if out is not None:
            return out, None
    if query.shape[0] == 1 and key.shape[0] > 1:  # learned queries, one set for the whole batch
        query = query.expand(key.shape[0], -1, -1, -1)
    reasons = [*_unsupported_dtypes(query, key, value), *unknown]
    if mesh is not None:
        reasons += problems(module, query, key)
    if reasons:
        raise Refused(NAME, reasons)
    grid = (*query.shape[:3], key.shape[2])
    score = the_score if softcap is None else capped(float(softcap))
    mask, score, start = _rule(attention_mask, grid, _causal(module, is_causal), sliding_window, score, reasons)
    if separate is not None:
        mask = separate if mask is None else mask & separate
    if indices is not None:
        selected = selected_keys(indices[:, None], query_start=start)
        mask = selected if mask is None else selected & (mask if isinstance(mask, Expr) else dense(mask, start))
    if position_bias is not None:
        score = score if isinstance(score, Expr) else bias(score, the_score, start)
        allowed, score = _added(position_bias, "position_bias", grid, start, score, reasons)
        if mask is not None and allowed is not None:
            allowed = allowed & (mask if isinstance(mask, Expr) else dense(mask, query_start=start))
        mask = mask if allowed is None else allowed
    if s_aux is not None and s_aux.numel() != grid[1]:
        reasons.append(
            Reason(
                "sinks do not fit the heads",
                f"s_aux of shape {tuple(s_aux.shape)}",
                f"one per head ({grid[1]},)",
                'use attn_implementation="eager"',
            )
        )
    if reasons:
        raise Refused(NAME, reasons)
    query, key, value = in_autocast(query, key, value)
    last_rows = start == grid[3] - grid[2]  # the default, whatever the numbers of rows and keys
    sinks = None if s_aux is None else s_aux.reshape(-1)
    arguments = Arguments(mask, None if score is the_score else score, scaling, None if last_rows else start, sinks)
    arguments = _with_dropout(arguments, rate)
    query, key, value, arguments = changed(module, query, key, value, arguments)
    if mesh is not None:
        rule = mask if isinstance(attention_mask, LazyMask) else None
        first = head_start(mesh, module, grid[1], rule, arguments.dropout, attention_mask, position_bias)
        arguments = arguments._replace(head_start=first)
    sources = (query, key, value, sinks, position_bias, attention_mask)
    needs_grad = torch.is_grad_enabled() and any(getattr(source, "requires_grad", False) for source in sources)
    # Models view the result as (B, Q, H · E).
    weights = _weights(query, key, arguments, needs_grad, engine) if weights_wanted else None
    if needs_grad and weights is not None:  # the output is computed from them, so that they have gradients
        groups = weights.unflatten(1, (value.shape[1], -1))
        out = (groups @ value.unsqueeze(2)).flatten(1, 2).transpose(1, 2).contiguous()
    elif any(begins) and not rate:
        own = [_from(begin, (query, key, value), number, arguments, engine) for number, begin in enumerate(begins)]
        out = torch.cat(own)
    elif rate or type(key) is not StoredRows or (out := key.attention(query, value, arguments, engine)) is None:
        small = arguments
        if isinstance(attention_mask, LazyMask) and arguments.mask is attention_mask.rule and last_rows:
            small = arguments._replace(mask=_small(attention_mask, query, key, value))
        out = attention_rows_first(query, key, value, small, engine, NAME)
    note(module, query, key, arguments)
    return out, weights


def _from(begin: int, arrays, number: int, arguments: Arguments, engine: Engine) -> torch.Tensor:
    """The output of one entry of the batch over its keys from `begin` on: blocks of keys are counted from there, so
    that its numbers are those that it has without padding before it.
    """
    query, key, value = (each[number % len(each)][None] for each in arrays)
    key, value = key[:, :, begin:], value[:, :, begin:]
    Q, K = query.shape[2], key.shape[2]
    start = (K + begin - Q if arguments.query_start is None else arguments.query_start) - begin
    places = (expr.batch, number), (expr.query, begin), (expr.key, begin)
    moved: dict[Expr, Expr] = {name: name + first for name, first in places}
    mask, score = (
        substituted(rule if isinstance(rule, Expr) else turn(rule, start + begin), moved) if rule is not None else None
        for rule, turn in ((arguments.mask, dense), (arguments.score, lambda rule, start: bias(rule, the_score, start)))
    )
    mask = None if mask is None else simplified(mask, (1, 1, Q, K), start)
    arguments = arguments._replace(mask=mask, score=score, query_start=start)
    return attention_rows_first(query, key, value, arguments, engine, NAME)


def _not_in_batches(arguments: dict[str, Any]) -> list[Reason]:
    """A reason for each argument that continuous batching does not compute."""
    return [
        Reason(
            f"{name} in continuous batching",
            f"generate_batch, with {name}",
            "causal attention, also with a window, a softcap or sinks",
            "use model.generate",
        )
        for name, value in arguments.items()
        if value is not None
    ]


def _with_dropout(arguments: Arguments, rate: float) -> Arguments:
    """The arguments with this rate, and a seed from torch's generator."""
    return arguments._replace(dropout=rate, seed=int(torch.randint(2**63 - 1, ()))) if rate else arguments


def _causal(module, is_causal: bool | None) -> bool:
    """Whether a call without a mask is causal."""
    return getattr(module, "is_causal", True) if is_causal is None else is_causal


def _like_an_earlier_one(query, key, value, mask, bias, *, engine: Engine, scaling) -> torch.Tensor | None:
    """The output of a call that is like an earlier one, has no mask or one by transformers, adds at most one tensor,
    and is not recorded; None for any other. Between the layers of a model little is in the processor's caches, so every
    check takes time.
    """
    if listened() or torch._C._is_any_autocast_enabled() or torch.compiler.is_exporting():
        return None
    rule = None
    if mask is not None and type(mask) is not LazyMask:
        if bias is not None or type(mask) is not torch.Tensor or not mask.dtype.is_floating_point:
            return None
        mask, bias = None, mask
    if bias is not None:
        least = _least(bias)
        if hides(least, _range_of(bias.dtype)):
            return None
        bias = None if _are_zeros(bias, least) else in_rows(bias)
    if mask is not None:
        Q, K = query.shape[2], key.shape[2]
        if mask.shape[0] not in (1, query.shape[0]) or mask.shape[2:] != (Q, K):
            return None
        if not mask.everything:
            if mask.query_start != K - Q:
                return None
            rule = _small(mask, query, key, value)
    return direct.attend(query, key, value, rule, bias, scaling, *REST, ROWS_FIRST.get(engine))


def _small(mask: LazyMask, query, key, value) -> Any:
    """The rule of a mask by transformers; in a small call its booleans, because each batch has other padding, and such
    calls are not planned for it.
    """
    if mask.rule.tables and query.is_cpu and is_small(query, key, value):
        return mask.dense
    return mask.rule


def _least(tensor) -> float:
    """The least of the floats that are added to the scores; -inf if there are none."""
    found = direct.least(tensor)
    if found is None:
        found = float(tensor.detach().amin()) if tensor.numel() else -math.inf
    return found


def _are_zeros(tensor, least: float) -> bool:
    """Whether to add the floats changes nothing, not even gradients. One row is added sooner than looked at again."""
    return least == 0 and tensor.shape[-2:-1] != (1,) and not tensor.requires_grad and not tensor.any()


def _unsupported_dtypes(query, key, value) -> list[Reason]:
    return [
        Reason(f"the dtype of the model's {name} is not supported", str(tensor.dtype), LISTED, "call model.float()")
        for name, tensor in (("query", query), ("key", key), ("value", value))
        if tensor.dtype not in DTYPES
    ]


def _rule(mask, grid, is_causal: bool, window, score: Expr, reasons: list[Reason]) -> tuple[Any, Any, int]:
    """The meaning of transformers' mask -> (mask, score, query_start); a tensor stays one where nothing is added."""
    B, _, Q, K = grid
    if mask is None:
        if window is not None and window < K:
            reasons.append(
                Reason(
                    "a window without a mask",
                    f"sliding_window={window} for {K} keys and attention_mask=None",
                    "the mask of the window",
                    "let transformers build the mask: pass attention_mask (batch, keys), or omit it",
                )
            )
        return (causal(), score, 0) if is_causal and Q > 1 else (None, score, K - Q)
    if isinstance(mask, DividedMask):
        reasons.append(
            Reason(
                "a part of a divided sequence outside rp.sequence",
                f"a mask of the whole sequence, for {Q} of its tokens",
                "the model's call, and recomputation in its backward pass, inside rp.sequence",
                "call loss.backward() inside it too",
            )
        )
        return None, score, K - Q
    if isinstance(mask, LazyMask):
        # It broadcasts as the models' own mask does. Without padding encoders ignore the mask, whatever a prefix adds.
        fits = mask.shape[2] in (1, Q) and mask.shape[3] in (1, K)
        if mask.everything and (fits or (not is_causal and mask.shape[2] == mask.shape[3] == Q)):
            return None, score, K - Q
        if tuple(mask.shape[2:]) != (Q, K) or mask.shape[0] not in (1, B):
            reasons.append(
                Reason(
                    "the mask has another shape than the scores",
                    f"{list(mask.shape)}",
                    f"(batch, 1, rows, keys) = {[B, 1, Q, K]}",
                    'report it with the name of the model; meanwhile use attn_implementation="eager"',
                )
            )
        return mask.rule, score, mask.query_start
    if not isinstance(mask, torch.Tensor) or not (mask.dtype is torch.bool or mask.dtype.is_floating_point):
        shown = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, torch.Tensor) else type(mask).__name__
        reasons.append(
            Reason(
                "attention_mask is not a mask",
                shown,
                "booleans (true means may attend), or floats that are added to the scores",
                how_to_pass(mask.cpu(), "attention_mask")
                if isinstance(mask, torch.Tensor) and not mask.is_complex()
                else "pass a tensor",
            )
        )
        return None, score, K - Q
    if mask.dtype is torch.bool:
        return (mask if _fits(mask, "attention_mask", grid, reasons) else None), score, K - Q
    return *_added(mask, "attention_mask", grid, K - Q, score, reasons), K - Q


def _added(tensor, name: str, grid, start: int, score: Expr, reasons: list[Reason]) -> tuple[Expr | None, Any]:
    """Floats that are added to the scores -> (mask or None, score); values near the dtype's minimum become a mask.

    Where there are none, the tensor itself may be the score: calls whose rules are tensors are recognized (fast_path).
    """
    if not _fits(tensor, name, grid, reasons):
        return None, score
    if torch.compiler.is_exporting():  # numbers are not known, so none becomes a mask
        return None, tensor if score is the_score else bias(tensor, score, start)
    least = _least(tensor)
    if not hides(least, _range_of(tensor.dtype)):
        if _are_zeros(tensor, least):
            return None, score
        tensor = in_rows(tensor)
        alone = score is the_score and not tensor.requires_grad and start == grid[3] - grid[2]
        return None, tensor if alone else bias(tensor, score, start)
    allowed = ~hides(tensor.detach(), _range_of(tensor.dtype))
    if tensor.requires_grad or not bool(((tensor == 0) | ~allowed).all()):
        score = bias(tensor, score, start)
    return (None if bool(allowed.all()) else dense(allowed, query_start=start)), score


def _fits(tensor, name: str, grid, reasons: list[Reason]) -> bool:
    fits = tensor.ndim <= 4 and all(a in (1, b) for a, b in zip(tensor.shape[::-1], grid[::-1], strict=False))
    if not fits:
        reasons.append(
            Reason(
                f"{name} does not fit",
                f"{list(tensor.shape)}",
                f"a shape that broadcasts to (B, H, Q, K) = {list(grid)}",
                f"slice {name} to the rows and keys of this call",
            )
        )
    return fits


def _weights(query, key, arguments: Arguments, needs_grad: bool, engine: Engine) -> torch.Tensor:
    """The whole weight matrix; with gradients, it is the attention with unit vectors as values."""
    if not needs_grad:
        return attention_weights(query, key, **arguments._asdict())
    K = key.shape[2]
    unit = torch.eye(K, dtype=query.dtype, device=query.device)
    return attention(query, key, unit.expand(*key.shape[:2], K, K), **arguments._asdict(), engine=engine)


# The modules for which it was decided last that weights are wanted. Gradient checkpointing repeats a call during the
# backward, where no model collects, and the repetition must save the same tensors.
_decided: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def wanted(module: Any, output_attentions: bool | None) -> bool:
    """Whether to return the weights of this call of `module`. None: it passed on no `output_attentions`."""
    if torch._C._current_graph_task_id() >= 0:  # inside a backward
        return _decided.get(module, bool(output_attentions))
    decision = _decide(module, output_attentions)
    if decision:
        _decided[module] = True
    elif _decided:
        _decided.pop(module, None)
    return decision


def _decide(module: Any, output_attentions: bool | None) -> bool:
    collected = _collector()()
    if output_attentions or collected is not None:
        return bool(output_attentions) or any("attentions" in name for name in collected or ())
    # From its dictionary, because each attribute of a configuration is looked up under other names, which takes 5 µs.
    own = object.__getattribute__(getattr(module, "config", None) or module, "__dict__")
    return output_attentions is None and bool(own.get("_output_attentions", own.get("output_attentions")))


@functools.cache
def _collector() -> Callable[[], Mapping[str, list] | None]:
    """What reads the outputs that the running model collects, by name; None outside a model that collects."""
    from transformers.utils.output_capturing import _active_collector

    return _active_collector.get
