"""Records the inputs of every attention call of a model, so that any part of its weights can be computed afterwards.

with record(model) as calls:
    model(**inputs)
calls[0].weights(rows=[3], heads=[0])
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from ..common.errors import refuse
from ..common.module_settings import implementations, layer_number
from ..common.public import Index
from ..engines import dispatch
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, Table, frozen_table, replace_tables
from ..language.problem import Problem

NAME = "regard"  # attn_implementation=; in such names, transformers interprets "flash", "sdpa" and "/"


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """One recorded attention call: copies of everything that its weights depend on.

    Args:
        index: the number of the call in the recording, from 0.
        layer: the module's layer_idx, or the first number in its name, or None.
        name: the module's path in the model.
        q: (B, H, Q, D) queries, after positions were applied.
        k: (B, G, K, D) keys, after positions were applied, including those in the cache.
        mask: the mask as an expression, or None.
        score: the score as an expression, or None.
        scale: the factor of q·k.
        query_start: (B,) the key position of the first row.
        sinks: (H, S) logits that are added to the denominator, or None.

    Examples:
        >>> import numpy as np
        >>> from regard.torch.hf import RecordedCall
        >>> q, start = np.zeros((1, 2, 3, 4), np.float32), np.zeros(1, np.int64)
        >>> call = RecordedCall(0, 0, "attn", q, q, mask=None, score=None, scale=0.5, query_start=start, sinks=None)
        >>> call.weights(rows=[0], heads=[1]).shape
        (1, 1, 1, 3)
    """

    index: int
    layer: int | None
    name: str
    q: np.ndarray
    k: np.ndarray
    mask: Expr | None
    score: Expr | None
    scale: float
    query_start: np.ndarray
    sinks: np.ndarray | None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, Q, K) of the weights."""
        return (*self.q.shape[:3], self.k.shape[2])

    def weights(
        self,
        rows: Index | None = None,
        keys: Index | None = None,
        heads: Index | None = None,
    ) -> np.ndarray:
        """Computes the exact weights of selected rows, keys and heads.

        weights[b, h, i, j] = exp(score(i, j) − lse(i)), as in `regard.attention_weights`

        Args:
            rows: a slice, positions or booleans; an integer selects one row and keeps the axis. None selects all.
            keys: the same for keys.
            heads: the same for heads.

        Returns:
            (B, heads, rows, keys) weights.

        Raises:
            Refused: positions outside the matrix.
        """
        H, group = self.q.shape[1], self.q.shape[1] // self.k.shape[1]
        index: Any = slice(None) if heads is None else heads
        try:
            chosen = np.atleast_1d(np.arange(H)[index])
        except (IndexError, TypeError, ValueError) as error:
            raise refuse(
                "weights",
                "heads outside the model",
                f"heads={heads!r}: {error}",
                f"positions among {H} heads",
                "count from 0, or from the end with negative numbers",
            ) from error
        rows, keys = ([part] if isinstance(part, int | np.integer) else part for part in (rows, keys))
        weights = [
            dispatch.weights(self.q[:, h : h + 1], self.k[:, h // group : h // group + 1], self._rules(h), rows, keys)
            for h in chosen.tolist() or [0]
        ]
        return np.concatenate(weights, axis=1)[:, : len(chosen)]

    def _rules(self, head: int) -> Arguments:
        """The rules for one head."""
        sinks = None if self.sinks is None else self.sinks[head : head + 1]
        return Arguments(self.mask, self.score, self.scale, self.query_start, sinks, head_start=head)


RecordedCall.__module__ = "regard.torch.hf"  # where it is public


class Recording:
    """The calls of one `record` block, with the names of modules and the copies of tables."""

    def __init__(self, model):
        self.calls: list[RecordedCall] = []
        self.names = {id(module): name for name, module in model.named_modules()}
        self.copies: dict[Table, Table] = {}

    def add(self, module, problem: Problem) -> None:
        if id(module) not in self.names:
            return
        name = self.names[id(module)]
        self.calls.append(
            RecordedCall(
                len(self.calls),
                layer_number(module, name),
                name,
                problem.q.copy(),
                problem.k.copy(),
                self._copied(problem.mask),
                self._copied(problem.score),
                problem.scale,
                problem.query_start,
                None if problem.sinks is None else problem.sinks.copy(),
            )
        )

    def _copied(self, rule: Expr | None) -> Expr | None:
        """The expression with copies of its tables; layers that share a table share its copy."""

        def copied(table: Table) -> Table:
            if table.frozen:
                return table
            copy = self.copies.get(table)
            if copy is None or not np.array_equal(copy.array, table.array, equal_nan=copy.kind == "float"):
                copy = self.copies[table] = frozen_table(table.array, table.name)
            return copy

        return None if rule is None else replace_tables(rule, copied)


class Listener(Protocol):
    """An observer of the attention calls of transformers models on regard."""

    def add(self, module, problem: Problem) -> None:
        """Called after each call of `module`; v of the problem is a placeholder."""


_listeners: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar("regard_listeners", default=())


@contextlib.contextmanager
def _added(present: contextvars.ContextVar[tuple[Any, ...]], one: Any) -> Iterator[None]:
    """Inside the block, there is one more."""
    token = present.set((*present.get(), one))
    try:
        yield
    finally:
        present.reset(token)


def listening(listener: Listener) -> contextlib.AbstractContextManager[None]:
    """Inside the block, `listener.add` receives every call of a model on regard in this thread; blocks nest."""
    return _added(_listeners, listener)


@contextlib.contextmanager
def record(model: torch.nn.Module) -> Iterator[list[RecordedCall]]:
    """Records every attention call that a model makes inside the block, in this thread.

    Each call costs a copy of q and k, (H·Q + G·K)·D numbers per batch entry, so generating n tokens stores n copies
    of the keys. Parts of the model that use another implementation are not recorded. Blocks may be nested.

    Args:
        model: a transformers model with attn_implementation="regard".

    Yields:
        The list of calls, which grows while the block runs.

    Raises:
        Refused: no part of the model runs on regard, or the block made no attention call.

    Examples:
        >>> import torch
        >>> from transformers import AutoModel, BertConfig
        >>> from regard.torch.hf import record, register
        >>> register()
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = AutoModel.from_config(config, attn_implementation="regard").eval()
        >>> with torch.no_grad(), record(model) as calls:
        ...     out = model(torch.zeros(1, 3, dtype=torch.long))
        >>> [(call.name, call.shape) for call in calls]
        [('encoder.layer.0.attention.self', (1, 2, 3, 3))]
    """
    names = implementations(model)
    if NAME not in names:
        raise refuse(
            "record",
            "this model does not run on regard",
            f"attn_implementation {', '.join(sorted(names)) or 'unknown'}",
            f"attn_implementation={NAME!r}",
            f"regard.torch.hf.register(); model.set_attn_implementation({NAME!r})",
        )
    recording = Recording(model)
    with listening(recording):
        yield recording.calls
    if not recording.calls:
        raise refuse(
            "record",
            "no attention call reached regard",
            f"a block in which {type(model).__name__} made none",
            "a call of a model that uses transformers' attention interface",
            "call the model inside the block; if it was called, its attention code does not use the interface: "
            'load it with attn_implementation="eager"',
        )


class Changer(Protocol):
    """Changes the attention calls of transformers models on regard."""

    def change(self, module, q, k, v, rules: Arguments) -> tuple[Any, Any, Any, Arguments]:
        """The tensors and the rules that a call of `module` is computed with."""


_changers: contextvars.ContextVar[tuple[Changer, ...]] = contextvars.ContextVar("regard_changers", default=())


def changing(changer: Changer) -> contextlib.AbstractContextManager[None]:
    """Inside the block, `changer.change` decides what the calls of models on regard in this thread compute."""
    return _added(_changers, changer)


def changed(module, q, k, v, rules: Arguments) -> tuple[Any, Any, Any, Arguments]:
    """The tensors and the rules of a call after all changes."""
    for changer in _changers.get():
        q, k, v, rules = changer.change(module, q, k, v, rules)
    return q, k, v, rules


def listened() -> bool:
    """Whether calls are noted or changed."""
    return bool(_listeners.get() or _changers.get())


def note(module, query, key, rules: Arguments) -> None:
    """Passes a call of `module` to every listener: its tensors, and its rules."""
    listeners = _listeners.get()
    if not listeners:
        return
    rules = rules._replace(dropout=0.0, seed=None)  # weights are recorded before dropout
    with torch.no_grad():
        problem = Problem.of(query.cpu(), key.cpu(), None, **rules._asdict(), where="record")
    for listener in listeners:
        listener.add(module, problem)
