"""`what_if`: runs a model with changed attention: masks, scores, sinks, and the tensors of chosen layers and heads;
`Change`: what an intervention does to one call.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from ...api.attention import attention
from ...common.errors import Refused, refuse
from ...common.module_settings import implementations, is_transformers_model, layer_number, number_of_heads
from ...common.public import ArrayLike
from ...engines.gpu.device_call import tables_on
from ...engines.gpu.lowering import POSITIONS, lower
from ...language.added_masks import hides, range_of
from ...language.analysis import substituted
from ...language.callables import Mask, Score, as_mask, as_score
from ...language.checks.arguments import Arguments, is_bare
from ...language.expr import Expr, head, key, query
from ...language.expr import score as the_score
from ...language.functions import where
from ...language.masks import causal, dense
from ...language.scores import bias
from ...observe.handwritten import Trail
from ...observe.observed_call import CACHE, FLEX, HF, REGARD, SDPA, WRITTEN_OUT, ObservedCall
from ...observe.observer import Observer, module_of
from ...observe.recorder import NAME, changing
from ..recording.entry import on_regard
from ..recording.keeper import fits, layer_selection
from ..recording.one_entry import reads

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
    given = {"q": q, "k": k, "v": v, "weights": weights, "output": output}
    if all(value is None for value in (mask, score, sinks, *given.values())):
        raise refuse(
            "what_if", "nothing is changed", "no rule and no tensor", "a change", "pass mask=, score= or output=0"
        )
    change = Change(
        layer_selection(layer, "what_if"),
        None if head is None else checked_heads(head),
        as_mask(mask),
        as_score(score),
        sinks,
        {name: value for name, value in given.items() if value is not None},
    )
    with WhatIf(checked_model(model), lambda *layer: change if change.selects(*layer) else None).changing() as running:
        yield running
    if not running.calls:
        raise running.unreached()


class WhatIf(Observer):
    """Changes the attention calls of a model. change_of: the change of a layer of this name and number; with None it
    stays as it is · calls: how many calls it has changed · layers: the layers that it has seen, with their numbers.
    """

    def __init__(self, model: torch.nn.Module, change_of: Callable[[str, int | None], Change | None]):
        super().__init__(model)
        self.change_of = change_of
        self.calls = 0
        self.layers: dict[str, int | None] = {}
        self.reached = False
        self.ended: ObservedCall | None = None
        self.call: Computed | None = None  # the call of transformers that is computed

    def __repr__(self) -> str:
        return f"<what if: {self.calls} calls changed>"

    @contextlib.contextmanager
    def changing(self) -> Iterator[WhatIf]:
        with contextlib.ExitStack() as stack:
            if is_transformers_model(self.modules[""]) and NAME not in implementations(self.modules[""]):
                with contextlib.suppress(Refused):  # otherwise its own code is observed
                    stack.enter_context(on_regard(self.modules[""]))
            stack.enter_context(self.watching())
            stack.enter_context(changing(self))
            yield self

    def unreached(self) -> Refused:
        """The error of a block in which nothing was changed."""
        seen = ", ".join(f"{name} ({number})" for name, number in list(self.layers.items())[:6])
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
            return self._of_transformers(change, function)
        if call.kind == FLEX:
            raise self._refused(call, "FlexAttention", "call regard.torch.attention with the same rules")
        if call.kind == CACHE:
            if cached := change.values.keys() & {"k", "v", "weights"}:
                raise self._refused(call, f"{', '.join(sorted(cached))} of a cache", "change output= or q=")
            q = change.patch("q", call.q)
            rules = change.rules(_rules(call), (q.shape[-3], q.shape[-2], int(call.given["cache"].lengths.max())))
            out = function(q=q, arguments=rules)
            return change.output(out[0], None), *out[1:]
        heads = number_of_heads(self._module(call.layer))
        if call.kind == SDPA and call.q.ndim == 4 and heads not in (None, call.q.shape[1]):  # heads of a group as rows
            fix = "generate without a cache, or call the layer with all of its heads"
            raise self._refused(call, f"{call.q.shape[1]} of {heads} heads", fix)
        q, k, v = change.tensors(*(self._with_heads(call, change, tensor) for tensor in (call.q, call.k, call.v)))
        rules = _rules(call) if call.kind == REGARD else _rules_of_sdpa(call)
        rules = change.rules(rules, (q.shape[-3], q.shape[-2], k.shape[-2]))
        given = Computed(q, k, v, rules)
        if call.kind == SDPA:
            return change.output(attention(q, k, v, **rules._asdict()), given).reshape(*call.q.shape[:-1], -1)
        out = function(q=q, k=k, v=v, arguments=rules)
        return change.output(out[0], given), *out[1:]

    def change(self, module, q, k, v, rules: Arguments) -> tuple[Any, Any, Any, Arguments]:
        """A call of a transformers model on regard, once its rules are known."""
        if (call := self.inside) is None or (change := self._change(call.layer)) is None:
            return q, k, v, rules
        self.reached, (q, k, v) = True, change.tensors(q, k, v)
        first = getattr(call.given.get("attention_mask"), "first", 0)  # a cache may have dropped those before it
        self.call = Computed(q, k, v, change.rules(rules, (q.shape[1], q.shape[2], k.shape[2]), first))
        return self.call

    def _of_transformers(
        self, change: Change, function: Callable[..., Any]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        self.reached = False
        out, weights = function()
        if not self.reached:
            raise refuse(
                "what_if",
                "a call that cannot be changed",
                "generate_batch, or a sequence over several devices",
                "a call of the model, or generate",
                "call the model itself",
            )
        out, self.call = change.output(out.transpose(1, 2), self.call).transpose(1, 2), None
        return out.contiguous(), weights if weights is None else change.patch("weights", weights)

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
        if inner := [name for name in ("q", "k") if name in change.values]:
            raise self._refused(call, f"{', '.join(inner)} of handwritten attention", "change v=, weights= or output=")
        if change.sinks is not None:
            raise self._refused(call, "sinks of handwritten attention", "change score= or weights=")
        K, scores = trail.k.shape[-2], trail.scores
        assert scores is not None
        if scores.shape[-1] != K:
            fix = 'model.set_attn_implementation("regard")'
            raise self._refused(call, f"a softmax over {scores.shape[-1]} columns of {K} keys", fix)
        self.inside = call  # what is computed here is not the model's
        try:
            four = self._with_heads(call, change, scores).to(weights.dtype)
            new = change.patch("weights", change.weigh(four, K - four.shape[-2]))
            return new.reshape(weights.shape)
        finally:
            self.inside = None

    # What both need ---------------------------------------------------------------------------------------------------

    def _change(self, layer: str) -> Change | None:
        number = layer_number(self._module(layer), layer)
        self.layers.setdefault(layer, number)
        return self.change_of(layer, number)

    def _module(self, layer: str) -> torch.nn.Module:
        """The module of a layer; the model itself has the name of its class."""
        return self.modules.get(layer, self.modules[""])

    def _with_heads(self, call: ObservedCall, change: Change | None, tensor: torch.Tensor) -> torch.Tensor:
        """(B, H, rows, depth) of a tensor whose batch and heads may be one axis. Refused: if the heads are not known
        and matter.
        """
        if tensor.ndim > 3 or call.kind == REGARD:
            return tensor
        lead = math.prod(tensor.shape[:-2])
        heads = number_of_heads(self._module(call.layer))
        if heads is None or lead % heads:
            if change is None or change.heads is not None or change.reads_heads():
                fix = "set num_heads on the module, or leave head= out"
                raise self._refused(call, f"heads and batch in one axis of {lead}", fix)
            heads = 1
        return tensor.reshape(-1, heads, *tensor.shape[-2:])

    def _refused(self, call: ObservedCall, what: str, fix: str) -> Refused:
        return refuse("what_if", "a call that cannot be changed", f"{call.layer}: {what}", "another change", fix)


def _rules(call: ObservedCall) -> Arguments:
    """The rules of a call of regard."""
    return Arguments(**{name: value for name, value in call.given.items() if name in Arguments._fields})


def _rules_of_sdpa(call: ObservedCall) -> Arguments:
    """The rules of a call of torch's function; added numbers keep their gradients."""
    mask, rate = call.given.get("attn_mask"), call.given.get("dropout_p", 0.0)
    rules = Arguments(scale=call.given.get("scale"))
    if call.given.get("is_causal"):
        rules = rules._replace(mask=causal(), query_start=0)
    if mask is not None and mask.dtype is torch.bool:
        rules = rules._replace(mask=mask)
    elif mask is not None:
        allowed = ~hides(mask.detach(), range_of(mask.dtype))
        rules = rules._replace(mask=allowed, score=mask.masked_fill(~allowed, 0).to(call.q.dtype))
    return rules._replace(dropout=rate, seed=int(torch.randint(2**63 - 1, ()))) if rate else rules


def checked_heads(given: Sequence[int] | int) -> tuple[int, ...]:
    """The numbers of heads as a tuple. Refused: anything else."""
    heads = (given,) if isinstance(given, int) else tuple(given)
    if not heads or any(isinstance(number, bool) or not isinstance(number, int) for number in heads):
        raise refuse("what_if", "head is not a number", f"head={given!r}", "integers, counted from 0", "pass head=3")
    return heads


def checked_model(model: Any) -> torch.nn.Module:
    """The module. Refused: what is none."""
    module = module_of(model)
    if module is None:
        raise refuse(
            "what_if", "not a model", type(model).__name__, "a torch module", "pass the model that the block calls"
        )
    return module


class Computed(NamedTuple):
    """What a call is computed with: q, k and v (B, heads, rows, depth), and its rules."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    rules: Arguments


class Change(NamedTuple):
    """An intervention. layers: numbers or patterns, None is all · heads: None is all · mask, score: rules that are
    added to those of the call · sinks: a logit, or one per head · values: tensors that take the place of q, k, v,
    weights or output of these heads.
    """

    layers: tuple[int | str, ...] | None = None
    heads: tuple[int, ...] | None = None
    mask: Expr | None = None
    score: Expr | None = None
    sinks: Any = None
    values: Mapping[str, Any] = MappingProxyType({})

    def selects(self, name: str, number: int | None) -> bool:
        """Whether this layer is changed."""
        return self.layers is None or any(fits(part, name, number) for part in self.layers)

    def checked_heads(self, count: int) -> list[int]:
        """The heads that are changed. Refused: one that the layer does not have."""
        if self.heads is None:
            return list(range(count))
        if outside := [number for number in self.heads if not -count <= number < count]:
            raise refuse(
                "what_if", "no such head", f"head={outside[0]}", f"0 … {count - 1}", "count from 0, as the page does"
            )
        return [number % count for number in self.heads]

    def reads_heads(self) -> bool:
        """Whether what happens depends on the entry or the head, as functions of tensors may."""
        rules = any(reads(rule, name) for rule in (self.mask, self.score) for name in ("batch", "head"))
        return rules or any(map(callable, self.values.values()))

    # Rules ------------------------------------------------------------------------------------------------------------

    def rules(self, given: Arguments, sizes: tuple[int, int, int], first: int = 0) -> Arguments:
        """The rules of a call with these numbers of heads, rows and keys; first: the token of the first key."""
        H, Q, K = sizes
        start = K - Q if given.query_start is None else given.query_start
        chosen = self._chosen(H)
        mask, score, sinks = given.mask, given.score, given.sinks
        places: dict[Expr, Expr] = {query: query + first, key: key + first} if first else {}
        if self.mask is not None:
            own = dense(mask, start) if is_bare(mask) else as_mask(mask)
            new = substituted(self.mask, places)
            new = new if chosen is None else new | ~chosen
            mask = new if own is None else own & new
        if self.score is not None:
            own = bias(score, the_score, start) if is_bare(score) else as_score(score)
            own = the_score if own is None else own
            new = substituted(self.score, {the_score: own, **places})
            score = new if chosen is None else where(chosen, new, own)
        if self.sinks is not None:
            sinks = self._sinks(sinks, H)
        return given._replace(mask=mask, score=score, sinks=sinks)

    def _chosen(self, count: int) -> Expr | None:
        """Whether a head is changed; None of all heads."""
        if self.heads is None:
            return None
        first, *others = [head == number for number in self.checked_heads(count)]
        for other in others:
            first = first | other
        return first

    def _sinks(self, given: Any, count: int) -> torch.Tensor:
        """(H, n) sinks: that of the changed heads in the first column, and nothing beside it."""
        before = torch.full((count, 1), -torch.inf) if given is None else torch.as_tensor(given).detach().float()
        new = before.reshape(count, -1).clone()
        chosen = self.checked_heads(count)
        new[chosen] = -torch.inf
        new[chosen, 0] = torch.as_tensor(self.sinks, dtype=torch.float32).expand(len(chosen))
        return new

    def weigh(self, scores: torch.Tensor, start: int) -> torch.Tensor:
        """The weights (B, H, Q, K) of scores before a softmax, with the rules; 0 in rows without a key."""
        _, H, Q, K = scores.shape
        places = [torch.arange(size, device=scores.device) for size in scores.shape]
        places[2] = places[2] + start
        at = [place.reshape([-1 if axis == own else 1 for axis in range(4)]) for own, place in enumerate(places)]
        rules = self.rules(Arguments(query_start=start), (H, Q, K))
        tables = tables_on(scores.device, rules.mask, rules.score)
        if rules.score is not None:
            rule = lower(rules.score, ("score", *POSITIONS), tables, scores.dtype, torch.int64, scores.dtype)
            scores = rule(scores, *at)
        if rules.mask is not None:
            allowed = lower(rules.mask, POSITIONS, tables, torch.float64, torch.int64, torch.bool)(*at)
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights = torch.softmax(scores, -1)
        return weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)

    # Tensors ----------------------------------------------------------------------------------------------------------

    def tensors(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """q, k and v of a call, (…, heads, rows, depth), with those of this intervention in the changed heads."""
        copies = q.shape[-3] // k.shape[-3]
        if copies > 1 and self.heads is not None and not self.values.keys().isdisjoint(("k", "v")):
            k, v = (each.repeat_interleave(copies, -3) for each in (k, v))
        return self.patch("q", q), self.patch("k", k), self.patch("v", v)

    def output(self, out: torch.Tensor, call: Computed | None) -> torch.Tensor:
        """The output (…, H, Q, E) of this call."""
        if "weights" in self.values and call is not None:
            H, K = out.shape[-3], call.v.shape[-2]
            own = out.new_zeros(*out.shape[:-1], K)
            if callable(self.values["weights"]):  # the output for unit vectors as values, which has gradients
                units = torch.eye(K, dtype=out.dtype, device=out.device).expand(*call.k.shape[:-1], K)
                own = attention(call.q, call.k, units, **call.rules._asdict())
            v, heads = call.v.repeat_interleave(H // call.v.shape[-3], -3), self.checked_heads(H)
            out = out.clone()
            out[..., heads, :, :] = self.patch("weights", own)[..., heads, :, :] @ v[..., heads, :, :]
        return self.patch("output", out)

    def patch(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """(…, heads, rows, depth) with the values of this name in the changed heads. Refused: other sizes."""
        if name not in self.values:
            return tensor
        heads = self.checked_heads(tensor.shape[-3])
        part, value = tensor if self.heads is None else tensor[..., heads, :, :], self.values[name]
        new = torch.as_tensor(value(part) if callable(value) else value, dtype=tensor.dtype, device=tensor.device)
        try:
            new = new.expand_as(part)
        except RuntimeError as error:
            raise refuse(
                "what_if",
                f"{name} does not fit the layer",
                f"{name} of shape {list(new.shape)}",
                f"something that broadcasts to (batch, heads, rows, depth) = {list(part.shape)}",
                "record the other text with as many tokens, or pass a number",
            ) from error
        if self.heads is None:
            return new
        out = tensor.clone()
        out[..., heads, :, :] = new
        return out
