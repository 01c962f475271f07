"""A recorder: what every attention call of a model was given, so that any part of its weights can be computed
afterwards.

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

from ...api.attention import attention_weights
from ...common.errors import refuse
from ...language.expr import Const, Expr, Op, Read, Table, Var, fold, frozen_table
from ...language.problem import Problem

__all__ = ["NAME", "RecordedCall", "implementations", "layer_number", "listening", "note", "record"]

NAME = "regard"  # as attn_implementation=; transformers gives words such as "flash", "sdpa" and "/" in a name a meaning


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """One attention call: all that its weights depend on, copied, so that nothing the model does later changes it.

    index: counts the calls of the recording. layer: the module's own number, or the first number in its name, or None.
    name: the module's path in the model, which tells encoder, decoder and cross-attention apart.
    q (B, H, Q, D) · k (B, G, K, D): after positions were applied, keys with what the cache held. mask, score:
    expressions or None.
    scale: of q·k. query_start (B,): where row 0 stands on the key axis. sinks (H, S) or None.
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

    def weights(self, rows=None, keys=None, heads=None) -> np.ndarray:
        """The exact weights of chosen rows, keys and heads -> (B, heads, rows, keys); None is all.

        weights[b, h, i, j] = exp(score(i, j) - lse(i)), as in `regard.attention_weights`. rows, keys, heads: a slice, a
        list, or booleans; an integer counts as a list of one. Refused: positions outside the matrix.
        """
        H, group = self.q.shape[1], self.q.shape[1] // self.k.shape[1]
        try:
            chosen = np.atleast_1d(np.arange(H)[slice(None) if heads is None else heads])
        except (IndexError, TypeError, ValueError) as error:
            raise refuse(
                "weights",
                "heads outside the model",
                given=f"heads={heads!r}: {error}",
                expected=f"positions among {H} heads",
                fix="count from 0, or from the end with negative numbers",
            ) from error
        rows, keys = ([part] if isinstance(part, int | np.integer) else part for part in (rows, keys))
        found = [
            attention_weights(
                self.q[:, h : h + 1],
                self.k[:, h // group : h // group + 1],
                mask=_at_head(self.mask, h),
                score=_at_head(self.score, h),
                scale=self.scale,
                query_start=self.query_start,
                sinks=None if self.sinks is None else self.sinks[h : h + 1],
                rows=rows,
                keys=keys,
            )
            for h in chosen.tolist() or [0]
        ]
        return np.concatenate(found, axis=1)[:, : len(chosen)]


class Recording:
    """The calls of one `record` block, and what is needed to name them."""

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
                self._kept(problem.mask),
                self._kept(problem.score),
                problem.scale,
                problem.query_start,
                None if problem.sinks is None else problem.sinks.copy(),
            )
        )

    def _kept(self, rule: Expr | None) -> Expr | None:
        """The rule over copies of its tables; layers that share a table share its copy."""

        def read(node, *index):
            if node.table.frozen:
                return node
            copy = self.copies.get(node.table)
            if copy is None or not np.array_equal(copy.array, node.table.array, equal_nan=copy.kind == "float"):
                copy = self.copies[node.table] = frozen_table(node.table.array, node.table.name)
            return Read(copy, *index)

        return _rebuilt(rule, lambda node: node, read)


class Listener(Protocol):
    """Who is told of every attention call of transformers on regard."""

    def add(self, module, problem: Problem) -> None:
        """`module` made a call; v of the problem is a stand-in."""


_listeners: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar("regard_listeners", default=())


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside the block, the listener is told of every call of a model on regard in this thread; blocks nest."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextlib.contextmanager
def record(model) -> Iterator[list[RecordedCall]]:
    """Every attention call that `model` makes inside the block, in this thread, as a list of `RecordedCall`.

    A call costs a copy of q and k: (H·Q + G·K)·D numbers per batch entry and call, so generating n tokens keeps n
    copies of the keys. Parts of the model that run on another implementation by choice are not recorded. Contexts may
    be nested.

    Refused: a model of which no part runs on regard, and a block in which no attention call was made.
    """
    found = implementations(model)
    if NAME not in found:
        raise refuse(
            "record",
            "this model does not run on regard",
            given=f"attn_implementation {', '.join(sorted(found)) or 'unknown'}",
            expected=f"attn_implementation={NAME!r}",
            fix=f"regard.torch.hf.register(); model.set_attn_implementation({NAME!r})",
        )
    recording = Recording(model)
    with listening(recording):
        yield recording.calls
    if not recording.calls:
        raise refuse(
            "record",
            "no attention call reached regard",
            given=f"a block in which {type(model).__name__} made none",
            expected="a call of the model, whose attention goes through transformers' attention interface",
            fix="call the model inside the block; if it was called, its attention code does not use the interface, "
            'so load it with attn_implementation="eager"',
        )


def note(module, query, key, rules: dict[str, Any]) -> None:
    """Tell every listener about a call of `module`: its tensors and its rules, as `attention` was given them."""
    listeners = _listeners.get()
    if not listeners:
        return
    with torch.no_grad():
        problem = Problem.of(query.cpu(), key.cpu(), None, **rules, where="record")
    for listener in listeners:
        listener.add(module, problem)


def implementations(model) -> set[str]:
    """The attention implementations that the model and the models inside it are set to.

    A module without parameters, such as rotary angles, attends nothing, whatever its copy of the configuration says.
    """
    configs = [
        getattr(module, "config", None) for module in model.modules() if next(module.parameters(), None) is not None
    ]
    return {name for config in configs if isinstance(name := getattr(config, "_attn_implementation", None), str)}


def layer_number(module, name: str) -> int | None:
    """The module's own number, or the first number in its name."""
    known: Any = getattr(module, "layer_idx", None)
    if isinstance(known, int):
        return known
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def _at_head(rule: Expr | None, number: int) -> Expr | None:
    """The rule as one head sees it, so that it can be asked about alone."""
    return _rebuilt(
        rule, lambda node: Const(number) if node.name == "head" else node, lambda node, *at: Read(node.table, *at)
    )


def _rebuilt(rule: Expr | None, var, read) -> Expr | None:
    """The same rule with its variables and reads replaced."""
    if rule is None or isinstance(rule, Const | Var):
        return rule if not isinstance(rule, Var) else var(rule)
    return fold(rule, lambda node: node, var, read, lambda node, *args: Op(node.name, *args))
