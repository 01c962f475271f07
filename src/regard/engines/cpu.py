"""CPU implementation of the public functions, for arrays and CPU tensors; gpu/entry.py is that for other devices."""

from __future__ import annotations

import contextvars
import ctypes
import math
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..common.arrays import is_tensor, like
from ..common.errors import refuse
from ..language.checks.arguments import Arguments, picked
from ..language.expr import Expr, Table
from ..language.measures import Request, checked_request
from ..language.problem import Gradients, Problem, Saved, Tangents
from . import array_rules, fast_path, selected_keys
from .choice import Explained, choose, why_not

T = TypeVar("T")
LONG = 1 << 25  # pairs, or numbers of keys and values, with which the reference takes a tenth of a second
TILE = (64, 32)  # rows and keys of a tile where the engine has none of its own


def attend(
    q, k, v, arguments: Arguments, engine="auto", *, lse=False, rows_first=False, where="attention", autograd=None
) -> tuple[Any, ...]:
    """(out,) or, with `lse`, (out, lse) of one call, with the leading axes of the caller's arrays.

    rows_first: out is (B, Q, H, E), in a call without lse, of arrays with four axes. autograd: a `fast_path.Autograd`
    for calls that require gradients; None rejects them.
    """
    arguments = arguments._replace(score=array_rules.in_rows(arguments.score))
    differentiable = autograd is not None and requires_gradients(q, k, v, arguments.sinks, arguments.score)
    if arguments.sinks is None and arguments.seed is None and not arguments.dropout:
        if not differentiable:
            found = fast_path.attend(q, k, v, arguments, engine, lse=lse, rows_first=rows_first, autograd=autograd)
            if found is not None:
                return found
        elif not lse and not _reads_arrays(arguments):
            kind, _ = fast_path.known(q, k, v, arguments, engine, rows_first=rows_first, autograd=autograd)
            if kind is not None and kind.even:
                return (autograd.again(kind, q, k, v, *kind.arrays(arguments[:2])),)
    problem = Problem.of(q, k, v, **arguments._asdict(), where=where, gradients=autograd is not None)
    if differentiable or (autograd is not None and requires_gradients(problem.score)):
        found = autograd.checked(problem, q, k, v, arguments.sinks, engine)
        return (found[0].transpose(1, 2).contiguous(),) if rows_first else found[: 1 + lse]
    if rows_first:
        B, H, Q, E = (problem.dims[name] for name in "BHQE")
        out = np.empty((B, Q, H, E), problem.dtype)
        solve(problem, engine, out.swapaxes(1, 2))
        return (like(q, out),)
    found = solve(problem, engine)
    lead = leading(problem)
    return tuple([like(q, each.reshape(*lead, *each.shape[2:])) for each in found[: 1 + lse]])


def weights(q, k, arguments: Arguments, rows, keys):
    """The weights of selected rows and keys, by the reference engine."""
    from .reference import attention as reference

    problem = Problem.of(q, k, None, **arguments._asdict(), where="attention_weights")
    parts = picked(rows, keys, problem.dims)
    found = interruptible(_is_long(problem), reference.weights, problem, *map(np.atleast_1d, parts))
    return like(q, found.astype(problem.dtype).reshape((*leading(problem), *parts[0].shape, *parts[1].shape)))


def statistics(q, k, of, arguments: Arguments, engine="auto") -> dict[str, Any]:
    """The results of `attention_stats` by name."""
    request = checked_request(q, k, of, **arguments._asdict())
    problem = request.problem

    def shaped(value):
        if isinstance(value, tuple):
            return type(value)(*map(shaped, value))
        value = value.reshape(*problem.lead, *value.shape[2:])
        return like(q, value.astype(problem.real) if value.dtype.kind == "f" else value)

    return {name: shaped(value) for name, value in measured(request, engine).items()}


def measured(request: Request, engine="auto") -> dict[str, Any]:
    """The results of a checked request by name, (B, H, Q, …)."""
    name, _ = choose(request.problem, engine, among=("jit", "reference"), where="attention_stats")
    compute: Callable
    # Without rows, keys or depth there is nothing to compute: the results are their shapes and empty sums.
    if name == "jit" and 0 not in request.problem.dims.values():
        from .jit.statistics import statistics as compute
    else:
        from .reference.statistics import statistics as compute
    return interruptible(name != "jit" and _is_long(request.problem), compute, request)


def explained(q, k, v, arguments: Arguments, engine="auto") -> Explained:
    """How `attend` would compute the call."""
    problem = Problem.of(q, k, v, **arguments._asdict(), where="explain", gradients=True)
    name, why = choose(problem, engine)
    if name != "jit":
        return Explained(problem, name, why, TILE, skips=False)
    from . import jit

    return Explained(problem, name, why, jit.tile_shape(problem), skips=True, target=jit.description())


# ---- checked problems ------------------------------------------------------------------------------------------------


def solve(problem: Problem, engine: str = "auto", out: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(out (B, H, Q, E), lse (B, H, Q)) of a checked problem; `out` may be given, with any strides."""
    name, _ = choose(problem, engine)
    if name == "jit":
        from . import jit

        parts = selected_keys.selection(problem)
        return jit.solve(problem, out) if parts is None else selected_keys.solve(problem, parts, jit.solve, out)
    if name == "sdpa":
        from . import sdpa

        found, lse = sdpa.forward(problem)
    else:
        from .reference import attention as reference

        found, lse = interruptible(_is_long(problem), reference.forward, problem)
    if out is None:
        return found.astype(problem.dtype), lse.astype(problem.real)
    out[...] = found
    return out, lse.astype(problem.real)


def keep(problem: Problem, engine: str = "auto", found: tuple[np.ndarray, np.ndarray] | None = None) -> Saved:
    """`solve` with what the backward pass needs; `found`: (out, lse) of an earlier forward pass, which is reused."""
    name, _ = choose(problem, engine)
    if name == "sdpa":
        raise refuse(
            "attention", "engine 'sdpa' has no backward pass", 'engine="sdpa"', "jit or reference", 'use engine="auto"'
        )
    if name == "jit":
        from . import jit

        parts = selected_keys.selection(problem) if found is None else None
        if parts is not None:
            return selected_keys.keep(problem, parts, jit.keep)
        return jit.keep(problem) if found is None else jit.kept(problem, *found)
    out, lse = solve(problem, name) if found is None else found
    return Saved(out, np.stack([lse] * 3), engine=name)


def pull_back(
    problem: Problem,
    saved: Saved,
    dout: np.ndarray,
    dlse: np.ndarray | None,
    wanted: list[Table],
    into: tuple[np.ndarray, np.ndarray] | None = None,
) -> Gradients:
    """The gradients of Σ out · dout + Σ lse · dlse by the engine of the forward pass; wanted: tables that need one.

    into: arrays of zeros for dk and dv in the dtype of sums, where the rows are some of several (the compiled engine).
    """
    if saved.engine == "jit":
        from . import jit

        parts = selected_keys.selection(problem) if into is None else None
        if parts is None:
            return jit.pull_back(problem, saved, dout, dlse, wanted, into)
        return selected_keys.pull_back(problem, parts, saved, dout, dlse, wanted=wanted, compute=jit.pull_back)
    assert into is None
    from .reference import attention as reference

    found = interruptible(_is_long(problem), reference.backward, problem, dout, dlse)
    return found._replace(tables={table: found.tables[table] for table in wanted})


def push_forward(problem: Problem, tangents: Tangents) -> tuple[np.ndarray, np.ndarray]:
    """How out and lse change in a direction, by the reference engine: float64."""
    from .reference import attention as reference

    return interruptible(_is_long(problem), reference.push_forward, problem, tangents)


def second(problem: Problem, along: Tangents, dout: np.ndarray, dlse: np.ndarray | None):
    """How gradients change in a direction, by the reference engine: `reference.second.Second`, float64."""
    from .reference.second import second

    return interruptible(_is_long(problem), second, problem, along, dout, dlse)


# ---- partial results -------------------------------------------------------------------------------------------------


def attend_partly(problem: Problem) -> tuple[tuple[np.ndarray, ...], float]:
    """((m, l, O), unit) of a checked problem without sinks, as `jit.partial.State` describes them."""
    against = why_not(problem, "jit")
    if against:
        raise refuse(
            "attention_part",
            "only the compiled engine has parts",
            "; ".join(against),
            "a problem that it supports",
            "use attention_with_lse, and merge its pairs (out, lse)",
        )
    from .jit import partial

    return partial.attend_partly(problem)


def merge_states(states: list[tuple[np.ndarray, ...]], unit: float) -> tuple[np.ndarray, ...]:
    """(m, l, O) over all keys, from those over consecutive sets of keys."""
    from .jit import partial

    return partial.merge_states([partial.State(*state) for state in states], unit)


def divide(
    state: tuple[np.ndarray, ...], unit: float, sinks: np.ndarray | None, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """(out, lse) of a state."""
    from .jit import partial

    return partial.divide(partial.State(*state), unit, sinks, dtype)


# ---- torch tensors ---------------------------------------------------------------------------------------------------


def _is_long(problem: Problem) -> bool:
    """Whether the reference takes so long that a signal should not have to wait."""
    B, H, Q, K, D, E = (problem.dims[name] for name in "BHQKDE")
    return B * H * K * max(Q, D, E) > LONG


def requires_gradients(*given) -> bool:
    """Whether one of these tensors, or a tensor that one of these expressions reads, requires gradients."""
    for value in given:
        for source in value.sources if isinstance(value, Expr) else (value,):
            if is_tensor(source) and source.requires_grad:
                return sys.modules["torch"].is_grad_enabled()
    return False


def _reads_arrays(arguments: Arguments) -> bool:
    """Whether an expression reads arrays, or the score is a tensor that requires gradients."""
    reads = any(isinstance(rule, Expr) and rule.tables for rule in arguments[:2])
    return reads or requires_gradients(arguments.score)


def leading(problem: Problem) -> tuple[int, ...]:
    """The leading axes of the result, as the caller gave them."""
    B, H = problem.q.shape[:2]
    assert math.prod(problem.lead) == B * H
    return problem.lead


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


class _Abandoned(BaseException):
    """Ends a computation whose caller was interrupted."""


def interruptible(long: bool, compute: Callable[..., T], *given: Any) -> T:
    """compute(*given), which Ctrl-C ends at once: Python handles signals only between two calls of NumPy.

    It is computed in a thread of its own if it is long and the caller is the main thread, which handles signals.

    An exception of a signal handler leaves this function at once; the computation ends after its current call of NumPy.
    """
    if not long or threading.current_thread() is not threading.main_thread():
        return compute(*given)
    results: list[T] = []
    errors: list[BaseException] = []
    running = threading.Lock()  # an interrupt inside of `Event.wait` can end as RuntimeError("release unlocked lock")
    running.acquire()

    def run() -> None:
        try:
            results.append(compute(*given))
        except BaseException as error:  # which the caller raises
            errors.append(error)
        finally:
            running.release()

    worker = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True, name="regard-law")
    worker.start()
    try:
        while not running.acquire(timeout=0.05):  # with a limit, because a wait may hide signals
            pass
    except BaseException:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident or 0), ctypes.py_object(_Abandoned))
        raise
    if errors:
        raise errors.pop()
    return results.pop()
