"""`what_if`: runs a model with changed attention: masks, scores, sinks, and the tensors of chosen layers and heads."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...api.attention import attention
from ...common.errors import Refused, refuse
from ...common.module_settings import implementations, is_transformers_model, number_of_heads
from ...common.public import ArrayLike
from ...language.callables import Mask, Score, as_mask, as_score
from ...language.checks.arguments import Arguments
from ...observe.handwritten import Trail
from ...observe.observed_call import CACHE, FLEX, HF, REGARD, SDPA, WRITTEN_OUT, ObservedCall, rules_of
from ...observe.observer import module_of
from ...observe.recorder import NAME, changing
from ..recording.entry import on_regard
from ..recording.keeper import layer_selection
from ..recording.layers import LayerObserver
from .change import Change, Computed, checked_heads

Value = float | ArrayLike | Callable[[torch.Tensor], Any]


@contextlib.contextmanager
def what_if(
    model: torch.nn.Module,
    *,
    layer: Sequence[int | str] | int | str | None = None,
    head: Sequence[int] | int | None = None,
    mask: Mask | None = None,
    score: Score | None = None,
    sinks: float | ArrayLike | None = None,
    q: Value | None = None,
    k: Value | None = None,
    v: Value | None = None,
    weights: Value | None = None,
    output: Value | None = None,
) -> Iterator[WhatIf]:
    """Inside the block, attention of the model in this thread is computed with these changes; blocks nest.

    out = softmax(score(s) where mask₀ and mask) v, with s and mask₀ of the model, in the chosen layers and heads

    It reaches transformers models (which run on regard inside the block), `regard.models`, layers of `regard.torch`,
    `nn.MultiheadAttention`, code that calls torch's scaled_dot_product_attention, and handwritten attention. Rules
    count tokens by `query` and `key`; they may read `batch`, so that each entry has an intervention of its own.
    Gradients flow. After the block the model is as it was, after errors and Ctrl-C, too.

    Args:
        model: the model, or the part of it, that is called inside the block.
        layer: the layers, by number, by name, or by patterns such as "decoder.*"; None is every layer.
        head: the query heads, counted from 0; None is every head.
        mask: pairs that stay allowed, as for `attention`: every other pair is cut. A row without keys gives 0.
        score: the new logit, an expression over `score`, which is the logit that the model computes: 2 * score.
        sinks: a logit in the denominator, one number or one per head; -inf removes those of the model.
        q: (B, H, Q, D), what broadcasts to it, or a number, in the place of that of the chosen heads, after positions
            were applied; or a function from the tensor of the chosen heads to what takes its place.
        k: (B, G, K, D), in the same way.
        v: (B, G, K, E), in the same way.
        weights: (B, H, Q, K) weights in the place of the softmax, in the same way. Weights that a layer returns are
            those that it was computed with.
        output: (B, H, Q, E) in the place of the output of the chosen heads, such as 0, or `call.out` of a run.

    Yields:
        The intervention; its `calls` counts the calls that it has changed.

    Raises:
        Refused: a model, layer, head or call that it does not reach, sizes that do not fit, and a block in which
            nothing was changed.

    Examples:
        >>> import torch, regard as rg
        >>> from regard import key, query
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> x = torch.randn(1, 8, 16)
        >>> with torch.no_grad(), rg.what_if(layer, head=1, mask=~((query == 5) & (key == 2))):
        ...     cut = layer(x)
        >>> ((cut - layer(x)).abs() > 1e-5).any(-1)[0].nonzero()[:, 0].tolist()
        [5]
    """
    tensors = {"q": q, "k": k, "v": v, "weights": weights, "output": output}
    values = {name: value for name, value in tensors.items() if value is not None}
    if mask is score is sinks is None and not values:
        fix = "pass mask=, score= or output=0"
        raise refuse("what_if", "nothing is changed", "no rule and no tensor", "a change", fix)
    heads = None if head is None else checked_heads(head)
    change = Change(layer_selection(layer, "what_if"), heads, as_mask(mask), as_score(score), sinks, values)
    if module_of(model) is None:
        fix = "pass the model that the block calls"
        raise refuse("what_if", "not a model", type(model).__name__, "a torch module", fix)
    with WhatIf(model, lambda *layer: change if change.selects(*layer) else None).changing() as running:
        yield running
    if not running.calls:
        raise running.unreached()


class WhatIf(LayerObserver):
    """Changes the attention calls of a model. change_of: the change of a layer of this name and number; with None it
    stays as it is · calls: how many calls it has changed · layers: the names and numbers of the layers it has seen.
    """

    def __init__(self, model: torch.nn.Module, change_of: Callable[[str, int | None], Change | None]):
        super().__init__(model)
        self.change_of = change_of
        self.calls = 0
        self.layers: dict[tuple[str, int | None], None] = {}
        self.ended: ObservedCall | None = None
        self.call: Computed | None = None  # the call of transformers that is computed

    def __repr__(self) -> str:
        return f"<what if: {self.calls} calls changed>"

    @contextlib.contextmanager
    def changing(self) -> Iterator[WhatIf]:
        """Inside the block, calls in this thread are changed; a model of transformers runs on regard, if it can."""
        with contextlib.ExitStack() as stack:
            if is_transformers_model(self.top) and NAME not in implementations(self.top):
                with contextlib.suppress(Refused):  # otherwise its own code is observed
                    stack.enter_context(on_regard(self.top))
            stack.enter_context(self.watching())
            stack.enter_context(changing(self))
            yield self

    def unreached(self) -> Refused:
        """The error of a block in which nothing was changed."""
        seen = ", ".join(f"{name} ({number})" for name, number in list(self.layers)[:6])
        return refuse(
            "what_if",
            "no attention call was changed",
            f"calls of {seen}" if seen else "no call was observed",
            "a call of a chosen layer inside the block, in the same thread",
            "choose among the layers, by number or name" if seen else "call the model, not compiled, inside the block",
        )

    # Calls of functions -----------------------------------------------------------------------------------------------

    def compute(self, call: ObservedCall, function: Callable[..., Any]) -> Any:
        """A call with the changes."""
        change = self._change(call.layer) if isinstance(call.q, torch.Tensor) else None  # arrays are not of a model
        if change is None:
            return function()
        self.calls += 1
        if call.kind == HF:
            out, weights = function()
            if (given := self.call) is None:
                what = "generate_batch, or a sequence over several devices"
                raise _unchanged(call, what, "call the model itself, or generate")
            self.call = None
            out = change.output(out.transpose(1, 2), given).transpose(1, 2).contiguous()
            return out, weights if weights is None else change.patch("weights", weights)
        rules = Arguments(**rules_of(call))
        if call.kind == CACHE:
            if cached := change.values.keys() & {"k", "v", "weights"}:
                raise _unchanged(call, f"{', '.join(sorted(cached))} of a cache", "change output= or q=")
            q = change.patch("q", call.q)
            sizes = (q.shape[-3], q.shape[-2], int(call.given["cache"].lengths.max()))
            out = function(q=q, arguments=change.rules(rules, sizes))
            return change.output(out[0], None), *out[1:]
        heads = number_of_heads(self.module(call.layer))
        if call.kind == SDPA and call.q.ndim == 4 and heads not in (None, call.q.shape[1]):  # heads of a group as rows
            fix = "generate without a cache, or call the layer with all of its heads"
            raise _unchanged(call, f"{call.q.shape[1]} of {heads} heads", fix)
        q, k, v = change.tensors(*(self._with_heads(call, change, tensor) for tensor in (call.q, call.k, call.v)))
        given = Computed(q, k, v, change.rules(rules, (q.shape[-3], q.shape[-2], k.shape[-2])))
        if call.kind == REGARD:
            out = function(q=q, k=k, v=v, arguments=given.rules)
            return change.output(out[0], given), *out[1:]
        if call.kind == FLEX:
            raise _unchanged(call, "FlexAttention", "call regard.torch.attention with the same rules")
        if rate := call.given.get("dropout_p"):
            given = given._replace(rules=given.rules._replace(dropout=rate, seed=int(torch.randint(2**63 - 1, ()))))
        return change.output(attention(q, k, v, **given.rules._asdict()), given).reshape(*call.q.shape[:-1], -1)

    def change(self, module, q, k, v, rules: Arguments) -> tuple[Any, Any, Any, Arguments]:
        """A call of a transformers model on regard, once its rules are known."""
        if (call := self.inside) is None or (change := self._change(call.layer)) is None:
            return q, k, v, rules
        q, k, v = change.tensors(q, k, v)
        first = getattr(call.given.get("attention_mask"), "first", 0)  # a cache may have dropped those before it
        self.call = Computed(q, k, v, change.rules(rules, (q.shape[1], q.shape[2], k.shape[2]), first))
        return self.call

    def called(self, call: ObservedCall) -> None:
        """Keeps no call, so that a block may be long."""
        self.seen.clear()
        self.ended = call if call.kind == WRITTEN_OUT else None

    # Handwritten attention --------------------------------------------------------------------------------------------

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = super().__torch_function__(function, types, args, kwargs)
        if self.inside is not None or torch.compiler.is_dynamo_compiling() or not isinstance(out, torch.Tensor):
            return out
        name, trail = getattr(function, "__name__", ""), self.products.trails.get(out)
        if name in ("softmax", "_softmax") and trail is not None and (change := self._change(self.layer)) is not None:
            weights = self._weigh(change, trail, out)
            self.products.trails[weights] = trail
            return weights
        if (ended := self.ended) is not None:
            self.ended, change = None, self._change(ended.layer)
            if change is not None and ended.trail is not None and not change.values.keys().isdisjoint(("v", "output")):
                new = self._with_heads(ended, change, ended.out)
                if "v" in change.values:
                    weights, v = (self._with_heads(ended, change, each) for each in (ended.trail.weights, ended.v))
                    new = weights @ change.patch("v", v.expand(*weights.shape[:-2], -1, -1))
                new, order = change.output(new, None).reshape(ended.out.shape), ended.trail.order
                return new if order is None else new.permute([order.index(axis) for axis in range(new.ndim)])
        return out

    def _weigh(self, change: Change, trail: Trail, weights: torch.Tensor) -> torch.Tensor:
        """The weights in the place of those of a softmax."""
        self.calls += 1
        call = ObservedCall(0, self.layer, WRITTEN_OUT, {"q": trail.q})
        K, scores = trail.k.shape[-2], trail.scores
        assert scores is not None
        inner = sorted(change.values.keys() & {"q", "k"}) + ["sinks"] * (change.sinks is not None)
        if inner:
            raise _unchanged(call, f"{', '.join(inner)} of handwritten attention", "change score=, weights= or output=")
        if scores.shape[-1] != K:
            fix = 'model.set_attn_implementation("regard")'
            raise _unchanged(call, f"a softmax over {scores.shape[-1]} columns of {K} keys", fix)
        self.inside = call  # what is computed here is not the model's
        try:
            four = self._with_heads(call, change, scores).to(weights.dtype)
            new = change.patch("weights", change.weigh(four, K - four.shape[-2]))
            return new.reshape(weights.shape)
        finally:
            self.inside = None

    # What both need ---------------------------------------------------------------------------------------------------

    def _change(self, layer: str) -> Change | None:
        number = self.layer_number(layer)
        self.layers[layer, number] = None
        return self.change_of(layer, number)

    def _with_heads(self, call: ObservedCall, change: Change, tensor: torch.Tensor) -> torch.Tensor:
        """(B, H, rows, depth) of a tensor whose batch and heads may be one axis. Refused: if the heads are not known
        and matter.
        """
        if tensor.ndim > 3 or call.kind == REGARD:
            return tensor
        lead = math.prod(tensor.shape[:-2])
        heads = number_of_heads(self.module(call.layer))
        if heads is None or lead % heads:
            if change.tells_heads_apart():
                fix = "set num_heads on the module, or leave head= out"
                raise _unchanged(call, f"heads and batch in one axis of {lead}", fix)
            heads = 1
        return tensor.reshape(-1, heads, *tensor.shape[-2:])


def _unchanged(call: ObservedCall, what: str, fix: str) -> Refused:
    return refuse("what_if", "a call that cannot be changed", f"{call.layer}: {what}", "another change", fix)
