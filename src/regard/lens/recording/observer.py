"""The observer that records every attention call of a running model, cut to one batch entry."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ...common.errors import Refused
from ...common.module_settings import layer_settings, number_of_heads, setting
from ...language.expr import Expr
from ...language.problem import Problem
from ...observe.observed_call import CACHE, HF, SDPA, WRITTEN_OUT, ObservedCall, engine_of, problem_of
from ..runs.call import Call
from ..runs.codes import longest
from ..runs.projections import LayerProjections
from .handwritten import factor_of, read_steps
from .keeper import Keeper, unmeasured
from .layers import LayerObserver
from .one_entry import entry_mask, entry_score, hidden, mask_of, reads, window_rules
from .products import Products, Waiting, numbers


class Recorder(LayerObserver):
    """Records the calls made in `with recorder.recording(): model(…)`.

    Each call is admitted by the keeper, which may refuse it, and added to it once its layer has ended.
    batch: the batch size of the model's inputs, if known.
    """

    def __init__(self, model, keeper: Keeper, batch: int | None):
        super().__init__(model, describing=True)
        self.keeper, self.batch, self.entry = keeper, batch, keeper.options.entry
        self.counted: Counter[str] = Counter()  # the calls of each layer in this pass
        self.matrices = Products()
        self.first: dict[tuple[str, int], LayerProjections] = {}  # of the first pass
        self.waiting: Waiting | None = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Records while the block runs, without gradients. Compiled modules run eagerly."""
        compiled = "torch._dynamo" in sys.modules  # not imported (which takes a second): nothing is compiled
        stance = torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext()
        with torch.no_grad(), stance, self.watching():
            yield self
        self._taken()

    def begun(self) -> None:
        """Called when a pass begins."""
        super().begun()
        self.counted.clear()

    def called(self, seen: ObservedCall) -> None:
        module, number = self.module(seen.layer), self.layer_number(seen.layer)
        self._taken()
        if self.keeper.options.selects(seen.layer, number):
            nth = self.counted[seen.layer]
            self.counted[seen.layer] += 1
            try:
                found = self._recorded(seen, module, number, nth)
            except Refused as refused:
                found = "; ".join(f"{reason.what}: {reason.given}" for reason in refused.reasons)
            if isinstance(found, str):
                self.keeper.left_out.append({"call": f"{seen.layer}: {seen.kind}", "reason": found})
            else:
                self.keeper.admit(found.call)
                self.waiting = found
        else:
            self.keeper.unselected.add(seen.layer)
        if seen.trail is not None:
            self.products.forget(seen.trail)
        seen.let_go()

    def stepped(self, function, args: tuple, kwargs: dict[str, Any], out, error: Exception | None) -> None:
        product = None if error else self.matrices.add(getattr(function, "__name__", ""), args, kwargs, out)
        if product is not None and self.waiting is not None:
            name = self.waiting.call.name
            self.waiting.compare(product, inside=any(running.name == name for running in self.stack))

    def _left(self, *hooked) -> None:
        name = self.stack[-1].name
        super()._left(*hooked)
        if self.waiting is not None and name == self.waiting.call.name:
            self.waiting.left(hooked[-1])

    def _taken(self) -> None:
        """Passes on the last recorded call. If the model multiplies its heads by W_o, it has done so by now."""
        if self.waiting is not None:
            waiting, self.waiting = self.waiting, None
            call = dataclasses.replace(waiting.call, projections=waiting.found)
            self.first.setdefault((call.name, waiting.nth), dataclasses.replace(waiting.found, y=None))
            self.keeper.add(call, waiting.weights, waiting.nth)

    def _recorded(self, seen: ObservedCall, module, number: int | None, nth: int) -> Waiting | str:
        """The call, cut to the batch entry; or the reason why it cannot be stored."""
        _unpack(seen, module)
        keys, values = self._keys_of_cache(seen) if seen.kind == CACHE else (seen.k, seen.v)
        if seen.q is None or keys is None or values is None:
            return "it has no keys or values"
        layout = Layout.of(tuple(seen.q.shape), module, self.batch, self.entry)
        if self.batch is None:
            self.batch = layout.batch
        if self.entry >= self.batch:
            return f"entry {self.entry} of a batch of {self.batch}"
        if layout.batch > 1 and layout.batch % self.batch:
            return f"a batch of {layout.batch} in a model with a batch of {self.batch}"
        q = layout.cut(seen.q)
        k, v = _grouped(layout.cut(keys), layout.cut(values), module)
        alone = not self.entry and layout.windows == 1
        of_q, of_k = (self.matrices.factor(part) if alone else None for part in (q, k))
        scaled = {} if of_q is None or of_k is None else {"scaled_before": of_q * of_k}
        call = unmeasured(
            seen.layer,
            number,
            self.crosses(),
            q=q.copy(),
            k=k.copy(),
            v=v.copy(),
            out=_out(seen, layout),
            x=self._layer_input(layout, q.shape[1]),
            notes={"kind": seen.kind, "seconds": seen.seconds, "dtype": str(q.dtype), **scaled, **_declared(module)}
            | ({"repeated": True} if seen.trail is not None and seen.trail.repeated else {}),
        )
        first = self.first.get((call.name, nth))  # later passes of generation have the matrices of the first
        known = self.matrices.inputs(call) if first is None else first
        weights = None
        if seen.kind != WRITTEN_OUT:
            call = self._with_rules(call, seen, layout)
        else:
            call, weights = _with_steps(call, seen, layout)
        rows = partial(layout.rows_of_product, count=call.shape[1])
        return Waiting(call, weights, nth, rows=rows, known=known, first=first)

    def _with_rules(self, call: Call, seen: ObservedCall, layout: Layout) -> Call:
        """The call with its mask, score rule, scale and sinks for this batch entry."""
        sizes, notes = call.shape, dict(call.notes)
        assert call.q is not None and call.k is not None
        problem = problem_of(seen) if seen.problem is None else seen.problem
        if problem.dropout is not None or seen.given.get("dropout_p"):
            notes["dropout"] = problem.dropout.rate if problem.dropout is not None else seen.given["dropout_p"]
        entry = min(self.entry, len(problem.query_start) - 1)
        start = int(problem.query_start[entry])
        if layout.windows > 1:
            each = sizes[0], sizes[1] // layout.windows, sizes[2] // layout.windows
            mask: Expr | None
            mask, score = window_rules(problem.mask, problem.score, layout.first, each, start)
            start, sinks = 0, None
            notes["windows"] = layout.windows
        else:
            mask, score = entry_mask(problem.mask, entry, sizes, start), entry_score(problem.score, entry, sizes, start)
            largest = abs(problem.scale) * longest(call.q) * longest(call.k)
            mask, score = hidden(mask, score, sizes, start, largest)
            if not call.aligned and not any(reads(rule, "query") for rule in (mask, score)):
                start = 0  # rows of one text over keys of another
            sinks = None if problem.sinks is None else np.array(problem.sinks)
        return dataclasses.replace(
            call,
            mask=mask,
            score=score,
            scale=problem.scale,
            start=start,
            sinks=sinks,
            engine=_ran(seen, problem),
            notes=notes,
        )

    def _keys_of_cache(self, seen: ObservedCall) -> tuple[Any, Any]:
        cache = seen.given["cache"]
        chosen = seen.given.get("sequences")
        entry = self.entry if chosen is None else int(np.atleast_1d(chosen)[self.entry])
        return (cache.keys(entry)[None], cache.values(entry)[None]) if cache.held(entry).start == 0 else (None, None)

    def _layer_input(self, layout: Layout, rows: int) -> np.ndarray | None:
        """The input of the layer, (Q, d): the first (B, Q, d) argument of the innermost module that has one."""
        for running in reversed(self.stack):
            for value in (running.kwargs.get("hidden_states"), *running.args, *running.kwargs.values()):
                if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                    continue
                if (found := layout.rows(value, rows)) is not None:
                    return found.copy()
        return None


def _with_steps(call: Call, seen: ObservedCall, layout: Layout) -> tuple[Call, np.ndarray]:
    """A handwritten call and its weights, which are 0 between windows; with its rules if every step between product and
    softmax is known.
    """
    trail: Any = seen.trail
    H, Q, K = call.shape
    W = layout.windows
    start = K - Q if call.aligned and W == 1 else 0
    weights = layout.cut(trail.weights)[..., : K // W].copy()
    if len(weights) == 1 and call.v is not None:  # one for the values of all heads
        weights = np.repeat(weights, len(call.v), 0)
    notes = dict(call.notes)
    known: dict[str, Any] = {}
    inside: Expr | None = None
    if W > 1:
        notes["windows"] = W
        known["mask"], _ = inside, _ = window_rules(None, None, 0, (H, Q // W, K // W), 0)
        rows, keys = (np.arange(size) * W // size for size in (Q, K))  # the window of each
        weights = np.where(rows[:, None] == keys, np.tile(weights, W), 0)
    if trail.combined is not None or len(weights) != H:
        notes["combined"] = trail.combined or "heads"

    def beside(operand, sizes) -> np.ndarray:
        """The numbers of an operand, over the keys of all windows."""
        numbers = layout.beside(operand, sizes)
        return np.tile(numbers, W) if W > 1 else numbers

    rules = read_steps(trail, beside, layout.heads, start)
    if rules is None:
        notes["unread"] = "a step between product and softmax is not known"
    elif len(weights) != H:
        notes["unread"] = "the weights are those of other heads than the scores"
    else:
        mask = None if rules.allowed is None else mask_of(rules.allowed, start)
        known = {
            "mask": mask if inside is None else inside if mask is None else inside & mask,
            "score": None if rules.score.scored and not rules.score.children else rules.score,
            "scale": rules.scale,
            "start": start,
            "sinks": rules.sinks,
        }
    if (rules is None or "combined" in notes) and (factor := factor_of(trail)) is not None:
        notes["factor"] = factor
    return dataclasses.replace(call, engine="written out", notes=notes, **known), weights


def _unpack(seen: ObservedCall, module) -> None:
    """Undoes the packing of transformers for SDPA when one token is generated: heads of a group as rows of one head."""
    copies, heads = _groups(module)
    sizes = tuple(seen.q.shape)
    packed = seen.kind == SDPA and len(sizes) == 4 and sizes[2] == copies > 1 and sizes[1] * copies == heads
    if not packed:
        return
    mask = seen.given.get("attn_mask")
    seen.given["q"] = seen.q.reshape(sizes[0], heads, 1, sizes[3])
    seen.out = seen.out.reshape(sizes[0], heads, 1, -1)
    if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:
        seen.given["attn_mask"] = mask.reshape(mask.shape[0], heads, 1, -1)


def _grouped(k: np.ndarray, v: np.ndarray, module) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values without the copies that a model makes for each head of a group (`repeat_kv`)."""
    copies, heads = _groups(module)
    if copies < 2 or len(k) % copies or heads not in (None, len(k)):
        return k, v
    parts = [array.reshape(-1, copies, *array.shape[1:]) for array in (k, v)]
    if all((part == part[:, :1]).all() for part in parts):
        return parts[0][:, 0], parts[1][:, 0]
    return k, v


def _groups(module) -> tuple[int, int | None]:
    """How many heads share their keys, and the number of heads, from the settings of a transformers layer."""
    copies = setting(module, "num_key_value_groups")
    return copies if type(copies) is int else 1, setting(setting(module, "config"), "num_attention_heads")


def _out(seen: ObservedCall, layout: Layout) -> np.ndarray | None:
    """The output of the call, (H, Q, E)."""
    if not hasattr(seen.out, "shape"):
        return None
    out = seen.out.transpose(1, 2) if seen.kind == HF else seen.out
    rows = seen.q.shape[-2]
    if out.shape[-2] != rows or layout.batch * layout.heads * rows * out.shape[-1] != np.prod(out.shape):
        return None
    return layout.cut(out).copy()


def _ran(seen: ObservedCall, problem: Problem) -> str:
    """The name of the engine that ran."""
    name = engine_of(seen, problem)[0]
    return name if seen.kind not in (HF, CACHE) and not seen.kind.startswith("regard") else f"regard {name}"


def _declared(module) -> dict[str, Any]:
    """The settings of the layer as notes."""
    known = layer_settings(module)
    notes: dict[str, Any] = {name: getattr(known, name) for name in ("scale", "softcap", "window", "groups", "causal")}
    notes |= {"sinks": None if known.sinks is None else True, "training": known.training or None}
    return {name: value for name, value in notes.items() if value is not None}


@dataclass(frozen=True)
class Layout:
    """A call whose tensors are (B, H, rows, depth), or (B·H, rows, depth) as for `torch.bmm`.

    entry: the recorded batch entry · windows: how many entries of the call's batch belong to one entry of the model's
    batch; their rows are concatenated.
    """

    batch: int
    heads: int
    entry: int
    windows: int = 1

    @classmethod
    def of(cls, sizes: tuple[int, ...], module: Any, batch: int | None, entry: int) -> Layout:
        """sizes: the shape of q · module: the layer, which may declare its heads · batch: of the model, if known."""
        lead = sizes[:-2]
        own, heads = lead[0] if lead else 1, math.prod(lead[1:])
        if len(lead) == 1:
            known, whole = number_of_heads(module), own
            heads = known if known and whole % known == 0 else whole // batch if batch and whole % batch == 0 else whole
            own = whole // heads
        return cls(own, heads, entry, own // batch if batch and own % batch == 0 else 1)

    def cut(self, value: Any, depth: int = 2) -> np.ndarray:
        """(heads, rows, depth) of the batch entry, as a view; also for keys and values, which may have fewer heads."""
        array = numbers(value)
        lead, inner = array.shape[:-depth], array.shape[-depth:]
        if len(lead) == 1:
            array = array.reshape(self.batch, -1, *inner) if lead[0] % self.batch == 0 else array[None]
        elif not lead:
            array = array[None, None]
        if self.windows > 1 and len(array) > 1:
            found = array[self.first : self.first + self.windows]
            found = np.moveaxis(found.reshape(self.windows, -1, *inner), 0, 1)
            return found.reshape(len(found), -1, *inner[1:])
        return array[min(self.entry, len(array) - 1)].reshape(-1, *inner)

    def rows(self, value: torch.Tensor, count: int) -> np.ndarray | None:
        """The rows of the batch entry in hidden states, (count, d), as a view if possible; None of other tensors."""
        each = count // self.windows
        if value.ndim == 3 and tuple(value.shape[:2]) == (self.batch, each):
            return numbers(value[self.first : self.first + self.windows]).reshape(count, -1)
        if value.ndim == 3 and tuple(value.shape[:2]) == (count, self.batch) and self.windows == 1:
            return numbers(value[:, self.entry])
        return numbers(value) if value.ndim == 2 and len(value) == count and self.batch == 1 else None

    def rows_of_product(self, value: torch.Tensor, count: int) -> np.ndarray | None:
        """The same of the operand or result of a matrix product, in which batch and rows may be one axis."""
        if value.ndim == 2 and self.batch > 1 and len(value) == self.batch * (count // self.windows):
            value = value.reshape(self.batch, -1, value.shape[-1])
        return self.rows(value, count)

    @property
    def first(self) -> int:
        """The first window of the entry."""
        return self.entry * self.windows

    def beside(self, operand: torch.Tensor, sizes: tuple[int, ...]) -> np.ndarray:
        """An operand broadcast to these sizes, as (H, Q, K) of the batch entry; broadcast axes have stride 0."""
        return self.cut(operand.detach().expand(sizes).reshape(self.batch, self.heads, *sizes[-2:]))


def weights_of(module: torch.nn.Module) -> Iterator[tuple[str, str, np.ndarray]]:
    """(name, dtype, array) of every weight and persistent buffer; dtypes that NumPy lacks are given as bytes."""
    for name, tensor in module.state_dict().items():
        held = tensor.detach().cpu().contiguous()
        try:
            numbers = held.numpy()
        except TypeError:
            numbers = held.reshape(-1).view(torch.uint8).numpy()
        yield name, str(held.dtype).removeprefix("torch."), numbers
