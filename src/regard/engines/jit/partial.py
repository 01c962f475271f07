"""Partial results: attention over some of the keys before the division, merged bit-identically to a single call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...language.problem import Problem, Saved
from . import threads
from .code import build
from .code.arguments import factors, slot
from .code.special import LOG2E
from .code.target import host
from .engine import fill
from .kernels import merge
from .launch import Workspace

SMALL = 1 << 16  # numbers to merge below which a single thread is faster


class State(NamedTuple):
    """The softmax of some rows over some keys; without sinks, a weight is 2**(exponent · (s - maximum)) / total.

    maximum (B, H, Q): m, the largest score, in units of the kernel, or -inf. total (B, H, Q): l = Σ p with p =
    2**(exponent · (s - m)), exponent = unit · log₂ e. values (B, H, Q, E): O = Σ p · v. All in the dtype of sums.
    """

    maximum: np.ndarray
    total: np.ndarray
    values: np.ndarray


def attend_partly(problem: Problem) -> tuple[State, float]:
    """(the state of a problem without sinks, its unit: what converts a score to nats)."""
    B, H, Q, _ = problem.q.shape
    values = np.zeros((B, H, Q, problem.v.shape[3]), problem.real)
    sums = np.zeros((3, B, H, Q), problem.real)
    sums[1] = -np.inf
    fill(problem, Saved(values, sums), partial=True)
    return State(sums[1], sums[2], values), factors(problem).unit


def merge_states(states: list[State], unit: float) -> State:
    """The state over all keys of these states, in the order of the keys, merged as a binary tree of them."""
    parts, rows, E = _stacked(states)
    _run(parts, rows, E, states[0].values.dtype, unit, {})
    shape = states[0].maximum.shape
    maximum, total, values = (array[0] for array in parts)
    return State(maximum[:rows].reshape(shape), total[:rows].reshape(shape), values.reshape(*shape, E))


def divide(state: State, unit: float, sinks: np.ndarray | None, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E) in a dtype, lse (B, H, Q)); sinks (H, S)."""
    parts, rows, E = _stacked([state])
    shape, real = state.maximum.shape, state.values.dtype
    out, lse = np.empty((*shape, E), dtype), np.empty(shape, real)
    more = {"out": out, "lse": lse, "Q": shape[2], "H": shape[1]}
    if sinks is not None:
        more |= {"sinks": np.ascontiguousarray(sinks, real), "sink_count": sinks.shape[1]}
    _run(parts, rows, E, dtype, unit, more)
    return out, lse


def _stacked(states: list[State]) -> tuple[tuple[np.ndarray, ...], int, int]:
    """Copies of the arrays of all states, (parts, rows) and (parts, rows, E), with room for whole vectors of rows."""
    (B, H, Q), E = states[0].maximum.shape, states[0].values.shape[3]
    rows, real = B * H * Q, states[0].values.dtype
    lanes = merge.lanes_of(real.name, host())
    room = -(-rows // lanes) * lanes
    maximum, total = np.full((len(states), room), -np.inf, real), np.zeros((len(states), room), real)
    values = np.empty((len(states), rows, E), real)
    for number, state in enumerate(states):
        maximum[number, :rows], total[number, :rows] = state.maximum.ravel(), state.total.ravel()
        values[number] = state.values.reshape(rows, E)
    return (maximum, total, values), rows, E


def _run(parts: tuple[np.ndarray, ...], rows: int, E: int, dtype: np.dtype, unit: float, more: dict) -> None:
    """Runs the kernel over the rows of some parts, which it merges into the first."""
    maximum, total, values = parts
    count, room = maximum.shape
    if rows == 0:
        return
    target, name = host(), np.dtype(dtype).name
    lanes = merge.lanes_of(name, target)
    kernel = build.compiled(f"merge {name}", target, lambda: merge.write(name, target), "merge")
    counter, tasks = np.zeros(1, np.int64), room // lanes
    given = {
        "next": counter, "tasks": tasks, "parts": count, "rows": rows, "room": room, "E": E,
        "maximum": maximum, "total": total, "values": values, "exponent": unit * LOG2E, "unit": unit, **more,
    }  # fmt: skip
    block = np.array([slot(given.get(each, 0)) for each in merge.SLOTS], np.int64)
    workers = 1 if values.size < SMALL else min(threads.count(), tasks)
    Workspace(kernel, block, merge.scratch_bytes(name, target), workers, (parts, counter, more)).run()
