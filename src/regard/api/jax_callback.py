"""Attention inside programs of JAX (jit, grad, vmap, scan …): a callback to regard, and one for its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.arrays import traced_by_jax
from ..common.dtypes import real_of
from ..common.errors import refuse
from ..engines import dispatch
from ..language.callables import as_mask, as_score
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, batch, table, walk
from ..language.problem import Problem
from .backward import attention_backward

READ = ("mask", "score", "sinks", "query_start")  # arguments that may be arrays of the program


def call_back(q: Any, k: Any, v: Any, arguments: Arguments, engine: Any, *, lse: bool = False) -> tuple[Any, ...]:
    """(out,) or (out, lse) of a call whose arrays have no numbers yet. Gradients are those of q, k, v, and of score and
    sinks that are arrays.
    """
    import jax

    names = [name for name in READ if traced_by_jax(getattr(arguments, name))]
    operands = (q, k, v, *(getattr(arguments, name) for name in names))
    how = {"vmap_method": "broadcast_all" if not names and _of_any_batch(arguments) else "sequential"}
    kind = jax.ShapeDtypeStruct
    rows, real = q.shape[:-1], jax.dtypes.canonicalize_dtype(real_of(np.dtype(q.dtype)))
    shapes = kind((*rows, v.shape[-1]), q.dtype), kind(rows, real)
    _check(dict(zip(names, operands[3:])), arguments, *operands[:3])
    slopes = [each for each in range(len(operands)) if jax.numpy.issubdtype(operands[each].dtype, jax.numpy.floating)]

    def given(arrays) -> Any:
        first, others = [np.asarray(each) for each in arrays[:3]], map(np.asarray, arrays[3:])
        return first, arguments._replace(**dict(zip(names, others)))

    def compute(*arrays):
        (q, k, v), rules = given(arrays)
        return dispatch.attend(q, k, v, rules, engine, lse=True)

    def pull_back(out, sums, dout, dlse, *arrays):
        (q, k, v), rules = given(arrays)
        known: dict[str, Any] = {"out": np.asarray(out), "lse": np.asarray(sums), "dlse": np.asarray(dlse)}
        found = attention_backward(np.asarray(dout), q, k, v, **known, engine=engine, **rules._asdict())
        parts = {"score": found.tables[table(rules.score)] if "score" in names else None, "sinks": found.sinks}
        by_name = [found.q, found.k, found.v, *(parts.get(name) for name in names)]
        return tuple([np.asarray(by_name[each], arrays[each].dtype) for each in slopes])

    @jax.custom_vjp
    def attend(*operands):
        return jax.pure_callback(compute, shapes, *operands, **how)

    def forward(*operands):
        out, sums = attend(*operands)
        return (out, sums), (out, sums, operands)

    def backward(kept, incoming):
        out, sums, operands = kept
        wanted = [kind(operands[each].shape, operands[each].dtype) for each in slopes]
        found = dict(zip(slopes, jax.pure_callback(pull_back, wanted, out, sums, *incoming, *operands, **how)))
        nothing = [np.zeros(each.shape, jax.dtypes.float0) for each in operands]
        return tuple([found.get(each, nothing[each]) for each in range(len(operands))])

    attend.defvjp(forward, backward)
    return attend(*operands)[: 1 + lse]


def _check(given: dict[str, Any], arguments: Arguments, *qkv) -> None:
    """Raises `Refused` while the program is traced, not when it runs. given: arrays of the program by name."""

    if "score" in given and given["score"].ndim == 0:
        raise refuse(
            "attention",
            "a score is a number of the program",
            "score= without axes",
            "an array, whose gradient regard computes",
            "give it axes: score=jnp.reshape(x, (1, 1))",
        )

    def without_numbers(array) -> np.ndarray:
        return np.broadcast_to(np.zeros((), np.dtype(array.dtype)), array.shape)

    q, k, v = map(without_numbers, qkv)
    rules = arguments._replace(**{name: without_numbers(array) for name, array in given.items()})
    Problem.of(q, k, v, **rules._asdict(), gradients=True)


def _of_any_batch(arguments: Arguments) -> bool:
    """Whether further batch entries before those of the call change nothing: no rule counts them."""
    rules = [rule for rule in (as_mask(arguments.mask), as_score(arguments.score)) if isinstance(rule, Expr)]
    counted = arguments.dropout or arguments.batch_start is not None or np.ndim(arguments.query_start)
    arrays = any(len(table.shape) > 3 for rule in rules for table in rule.tables)
    return not counted and not arrays and not any(node is batch for node in walk(*rules))
