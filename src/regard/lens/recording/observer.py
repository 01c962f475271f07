"""Observing: every attention call of a running model, taken as it happens and cut to one batch entry."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ...common.errors import Refused
from ...common.module_settings import layer_settings, setting
from ...language.problem import Problem
from ...torch.hf.recorder import layer_number
from ...torch.observe.describe import engine_of, problem_of
from ...torch.observe.observer import CACHE, HF, SDPA, WRITTEN_OUT, Observer, Seen, module_of
from .keeper import Passed
from .recorded_call import Taken
from .rules.handwritten import read_steps
from .rules.one_entry import entry_mask, entry_score, hidden, mask_of, reads, window_rules
from .tensor_layout import Layout, numbers

__all__ = ["Recorder"]

ELSEWHERE = (
    "key_value_states",
    "encoder_hidden_states",
)  # what layers of transformers are given keys of another text by


class Recorder(Observer):
    """`with recorder.recording(): model(…)`: each call goes to `take` as a `Taken`; what cannot be kept stands in
    `passed`.

    batch: entries that the model is given, where it is known. entry: the one that is looked at. wanted: which layers,
    by name and number.
    """

    def __init__(
        self,
        model,
        take: Callable[[Taken], None],
        *,
        batch: int | None,
        entry: int,
        wanted: Callable[[str, int | None], bool],
    ):
        super().__init__(model, describing=True)
        self.take, self.batch, self.entry, self.wanted = take, batch, entry, wanted
        self.top = module_of(model)
        self.turn = -1
        self.counted: Counter[tuple[int, str]] = Counter()
        self.passed = Passed()

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Without gradients; compiled modules run as they were written."""
        # A pass begins with the model, or with the part of it that writes.
        begins = [
            module
            for module in self.modules.values()
            if module is self.top or hasattr(module, "prepare_inputs_for_generation")
        ]
        handles = [module.register_forward_pre_hook(self._begun) for module in begins]
        compiled = "torch._dynamo" in sys.modules  # loading it takes a second, and without it nothing is compiled
        stance = torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext()
        try:
            with torch.no_grad(), stance, self.watching():
                yield self
        finally:
            for handle in handles:
                handle.remove()

    def _begun(self, *_) -> None:
        self.turn += 1

    def called(self, seen: Seen) -> None:
        module = self.modules.get(seen.name) if seen.name in self.modules else self.top
        number = layer_number(module, seen.name)
        if self.wanted(seen.name, number):
            turn = max(self.turn, 0)
            nth = self.counted[turn, seen.name]
            self.counted[turn, seen.name] += 1
            try:
                found = self._taken(seen, module, number, turn, nth)
            except Refused as refused:
                self._leave_out(seen, "; ".join(f"{reason.what}: {reason.given}" for reason in refused.reasons))
            else:
                if found is not None:
                    self.take(found)
        else:
            self.passed.over.add(seen.name)
        if seen.trail is not None:
            self.lineage.forget(seen.trail)
        seen.given, seen.out, seen.asked, seen.trail, seen.outside = {"q": None}, None, None, None, []

    def _leave_out(self, seen: Seen, reason: str) -> None:
        self.passed.left_out.append({"call": f"{seen.name}: {seen.kind}", "reason": reason})

    def _taken(self, seen: Seen, module, number: int | None, turn: int, nth: int) -> Taken | None:
        _unpack(seen, module)
        held = self._keys_of_cache(seen) if seen.kind == CACHE else (seen.k, seen.v)
        if seen.q is None or held[0] is None or held[1] is None:
            self._leave_out(seen, "it has no keys or values of its own")
            return None
        layout = Layout.of(tuple(seen.q.shape), module, self.batch, self.entry)
        if self.batch is None:
            self.batch = layout.batch
        if self.entry >= self.batch:
            self._leave_out(seen, f"there is no entry {self.entry} among {self.batch}")
            return None
        if layout.batch > 1 and layout.batch % self.batch:
            self._leave_out(seen, f"a batch of {layout.batch}, where the model was given {self.batch} entries")
            return None
        q, k, v = layout.cut(seen.q), layout.cut(held[0]), layout.cut(held[1])
        k, v = _grouped(k, v, module)
        common: dict[str, Any] = {
            "name": seen.name,
            "layer": number,
            "turn": turn,
            "nth": nth,
            "q": q.copy(),
            "k": k.copy(),
            "v": v.copy(),
            "out": _out(seen, layout, tuple(seen.q.shape)),
            "x": self._given(layout, q.shape[1]),
            "cross": self._crosses(),
        }
        notes = {"kind": seen.kind, "seconds": seen.seconds, "dtype": str(q.dtype), **_declared(module)}
        if seen.kind == WRITTEN_OUT:
            return self._written(seen, layout, common, notes)
        problem = problem_of(seen, numbers=True) if seen.asked is None else seen.asked
        if problem.dropout is not None or seen.given.get("dropout_p"):
            notes["dropout"] = problem.dropout.rate if problem.dropout is not None else seen.given["dropout_p"]
        entry = min(self.entry, len(problem.query_start) - 1)
        start = int(problem.query_start[entry])
        sizes = (q.shape[0], q.shape[1], k.shape[1])
        if layout.windows > 1:
            each = (len(q), q.shape[1] // layout.windows, k.shape[1] // layout.windows)
            inside, scored = window_rules(problem.mask, problem.score, layout.first, each, start)
            return Taken(
                **common,
                mask=inside,
                score=scored,
                scale=problem.scale,
                engine=_ran(seen, problem),
                notes=notes | {"windows": layout.windows},
            )
        mask, score = entry_mask(problem.mask, entry, sizes, start), entry_score(problem.score, entry, sizes, start)
        mask, score = hidden(mask, score, sizes, start, abs(problem.scale) * _longest(q) * _longest(k))
        if common["cross"] and not any(rule is not None and reads(rule, "query") for rule in (mask, score)):
            start = 0  # rows of one text over keys of another
        return Taken(
            **common,
            mask=mask,
            score=score,
            scale=problem.scale,
            start=start,
            sinks=None if problem.sinks is None else np.array(problem.sinks),
            engine=_ran(seen, problem),
            notes=notes,
        )

    def _written(self, seen: Seen, layout: Layout, common: dict[str, Any], notes: dict[str, Any]) -> Taken:
        """Rules where every step between the product and the softmax is known; the weights go along, to be compared."""
        trail: Any = seen.trail
        q, k = common["q"], common["k"]
        start = 0 if common["cross"] else k.shape[1] - q.shape[1]
        if layout.windows > 1:
            return self._windows_written(layout, trail.weights, common, notes)
        weights = layout.cut(trail.weights)[..., : k.shape[1]].copy()
        rules = read_steps(trail, layout.beside, layout.heads, start)
        notes |= {} if rules is not None else {"unread": "a step between product and softmax is not known"}
        if rules is None:
            return Taken(**common, weights=weights, engine="written out", notes=notes)
        mask = None if rules.allowed is None else mask_of(rules.allowed, start)
        return Taken(
            **common,
            mask=mask,
            score=None if rules.score.scored and not rules.score.children else rules.score,
            scale=rules.scale,
            start=start,
            sinks=rules.sinks,
            weights=weights,
            engine="written out",
            notes=notes,
        )

    def _windows_written(self, layout: Layout, weights, common: dict[str, Any], notes: dict[str, Any]) -> Taken:
        """The weights of windows one after the other; between windows there are none."""
        Q, K = common["q"].shape[1] // layout.windows, common["k"].shape[1] // layout.windows
        parts = layout.cut(weights)  # the rows of all windows, over the keys of one
        whole = np.zeros((len(parts), layout.windows * Q, layout.windows * K), parts.dtype)
        for window in range(layout.windows):
            rows, keys = slice(window * Q, (window + 1) * Q), slice(window * K, (window + 1) * K)
            whole[:, rows, keys] = parts[:, rows, :K]
        mask, _ = window_rules(None, None, 0, (layout.heads, Q, K), 0)
        more = {"windows": layout.windows, "unread": "windows of attention that is written out"}
        return Taken(**common, mask=mask, weights=whole, engine="written out", notes=notes | more)

    def _keys_of_cache(self, seen: Seen) -> tuple[Any, Any]:
        cache = seen.given["cache"]
        held = cache.held(self.entry)
        return (cache.keys(self.entry)[None], cache.values(self.entry)[None]) if held.start == 0 else (None, None)

    def _given(self, layout: Layout, rows: int) -> np.ndarray | None:
        """What the layer was given: the first (B, Q, d) among the arguments of the innermost module that has one, as
        (Q, d).
        """
        for running in reversed(self.stack):
            for value in (running.kwargs.get("hidden_states"), *running.args, *running.kwargs.values()):
                if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                    continue
                if value.ndim == 3 and tuple(value.shape[:2]) == (layout.batch, rows // layout.windows):
                    mine = value[layout.first : layout.first + layout.windows]
                    return numbers(mine).reshape(rows, -1).copy()
                if value.ndim == 3 and tuple(value.shape[:2]) == (rows, layout.batch) and layout.windows == 1:
                    return numbers(value[:, layout.entry]).copy()
                if value.ndim == 2 and value.shape[0] == rows and layout.batch == 1:
                    return numbers(value).copy()
        return None

    def _crosses(self) -> bool:
        """Whether the layer was given keys of another text."""
        running = self.stack[-1] if self.stack else None
        if running is None:
            return False
        if any(isinstance(running.kwargs.get(name), torch.Tensor) for name in ELSEWHERE):
            return True
        module = self.modules.get(running.name, self.top)
        words = list(inspect.signature(module.forward).parameters)[:2] if module is not None else []
        pair = [running.kwargs.get(word, value) for word, value in itertools.zip_longest(words, running.args[:2])]
        return words == ["query", "key"] and pair[0] is not pair[1]


def _unpack(seen: Seen, module) -> None:
    """Takes apart what transformers packs for SDPA when one token is written: the heads of a group as rows of one
    head.
    """
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
    """Keys and values without the copies that a model makes of them, one for each head of a group."""
    copies, heads = _groups(module)
    if copies < 2 or len(k) % copies or heads not in (None, len(k)):
        return k, v
    parts = [array.reshape(-1, copies, *array.shape[1:]) for array in (k, v)]
    if all((part == part[:, :1]).all() for part in parts):
        return parts[0][:, 0], parts[1][:, 0]
    return k, v


def _groups(module) -> tuple[int, int | None]:
    """How many heads share their keys, and how many heads there are, as a layer of transformers tells."""
    copies = setting(module, "num_key_value_groups")
    return copies if type(copies) is int else 1, setting(setting(module, "config"), "num_attention_heads")


def _longest(vectors: np.ndarray) -> float:
    return float(np.sqrt(np.square(vectors, dtype=np.float64).sum(-1)).max(initial=0))


def _out(seen: Seen, layout: Layout, sizes: tuple[int, ...]) -> np.ndarray | None:
    """What came out, (H, Q, E)."""
    if not hasattr(seen.out, "shape"):
        return None
    out = seen.out.transpose(1, 2) if seen.kind == HF else seen.out
    if out.shape[-2] != sizes[-2] or layout.batch * layout.heads * sizes[-2] * out.shape[-1] != np.prod(out.shape):
        return None
    return layout.cut(out).copy()


def _ran(seen: Seen, problem: Problem) -> str:
    """The engine that ran, as it calls itself."""
    name = engine_of(seen, problem)[0]
    return name if seen.kind not in (HF, CACHE) and not seen.kind.startswith("regard") else f"regard {name}"


def _declared(module) -> dict[str, Any]:
    """What the layer says of itself."""
    known = layer_settings(module)
    notes: dict[str, Any] = {name: getattr(known, name) for name in ("scale", "softcap", "window", "groups", "causal")}
    notes |= {"sinks": None if known.sinks is None else True, "training": known.training or None}
    return {name: value for name, value in notes.items() if value is not None}
