"""Counterexample: a short Python script without regard that shows one wrong result, ready for an issue tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from .call import Call
from .conventions.fields import Adapter
from .conventions.layouts import pack
from .conventions.parameters import Parameter
from .conventions.translate import prepare
from .law.expected import Expected

__all__ = ["script"]

ROLES = ("q", "k", "v", "mask", "bias", "sinks", "lengths", "cu_seqlens_q", "cu_seqlens_k")
ASSERT = {
    "numpy": "np.testing.assert_allclose(np.asarray({got}, np.float64), {wanted}, rtol=0, atol={atol})",
    "torch": "np.testing.assert_allclose({got}.detach().double().numpy(), {wanted}, rtol=0, atol={atol})",
    "jax": "np.testing.assert_allclose(np.asarray({got}, np.float64), {wanted}, rtol=0, atol={atol})",
}


def script(
    call: Call, adapter: Adapter, parameters: Sequence[Parameter], target: str, right: Expected, what: str, says: str
) -> str:
    """The script. target: `module:function` or `FILE.py:function` · right: what the law says · what: the result that is
    wrong ("out", "lse" or "weights") · says: the law in words, for the first line
    """
    plain = replace(call, dout=None, dlse=None)
    prepared = prepare(plain, replace(adapter, arrays="numpy", gradients="none"), parameters)
    names: dict[int, str] = {id(array): role for role, array in reversed(list(prepared.given.items()))}
    lines = [f"# {says}"]
    if call.memory != "contiguous":
        lines.append(f"# This was seen with {call.memory} arrays; these are contiguous.")
    lines += ["import numpy as np"]
    if adapter.arrays != "numpy" or call.dtype == ml_dtypes.bfloat16:
        lines.append(
            {"torch": "import torch", "jax": "import jax.numpy as jnp"}.get(adapter.arrays, "import ml_dtypes")
        )
    lines += [*_imported(target), ""]
    used = [(role, array) for role, array in prepared.given.items() if isinstance(array, np.ndarray)]
    for role, array in used:
        if names[id(array)] == role:
            lines.append(f"{role} = {_literal(array, adapter.arrays)}")
    arguments = [_argument(value, names) for value in prepared.args]
    arguments += [f"{name}={_argument(value, names)}" for name, value in prepared.kwargs.items()]
    lines.append(f"result = {_called(target)}({', '.join(arguments)})")
    wanted, atol = _wanted(call, adapter, right, what)
    lines.append(f"expected = np.array({_numbers(wanted)})  # {_words(what)}")
    got = _part(adapter.returns, what)
    lines.append(ASSERT[adapter.arrays].format(got=got, wanted="expected", atol=f"{atol:.1e}" if atol else "0"))
    return "\n".join(lines) + "\n"


def _wanted(call: Call, adapter: Adapter, right: Expected, what: str) -> tuple[np.ndarray, float]:
    """The expected numbers in the layout of the function, and the largest bound among them."""
    array, bound = getattr(right, what), getattr(right.bounds, what)
    finite = np.broadcast_to(bound, array.shape)[np.isfinite(array)]
    atol = float(finite.max(initial=0.0))
    lengths = None if call.lengths is None or adapter.layout != "THD" else [int(n) for n in call.lengths]
    if what == "out":
        return pack(array, adapter.layout, lengths), atol
    if what == "lse":
        turned = array / np.log(2) if adapter.lse == "base-2" else array
        axes = adapter.lse_layout
        turned = turned.swapaxes(1, 2) if axes.startswith("BQH") else turned
        return (turned[..., None] if axes.endswith("1") else turned), atol
    return array, atol


def _words(what: str) -> str:
    return {
        "out": "the weighted mean of v, computed in float64",
        "lse": "the logarithm of the sum of exp(score), computed in float64",
        "weights": "the softmax of the scores, computed in float64",
    }[what]


def _part(returns: str | Sequence[str | None] | Mapping[str, str], what: str) -> str:
    """The expression that reads one result."""
    if isinstance(returns, str):
        return "result"
    if isinstance(returns, Mapping):
        return f"result[{returns[what]!r}]"
    return f"result[{list(returns).index(what)}]"


def _imported(target: str) -> list[str]:
    """The lines that import the function."""
    module, _, name = target.rpartition(":")
    first = name.split(".")[0]
    if module.endswith(".py"):
        path = module.replace("\\", "/")
        folder, _, file = path.rpartition("/")
        note = f"  # run this in the folder of {file}" if folder else ""
        return [f"from {file.removesuffix('.py')} import {first}{note}"]
    return [f"from {module} import {first}"]


def _called(target: str) -> str:
    return target.rpartition(":")[2]


def _argument(value: Any, names: Mapping[int, str]) -> str:
    return names[id(value)] if id(value) in names else repr(value)


def _literal(array: np.ndarray, arrays: str) -> str:
    """An array as source code that makes it in the type that the function takes."""
    kind = array.dtype.name
    numbers = _numbers(array)
    if array.size == 0:
        shape = tuple(int(size) for size in array.shape)
        return {
            "numpy": f"np.zeros({shape}, {_dtype(kind)})",
            "torch": f"torch.zeros({shape}, dtype=torch.{kind})",
            "jax": f"jnp.zeros({shape}, jnp.{kind})",
        }[arrays]
    if arrays == "torch":
        return f"torch.tensor({numbers}, dtype=torch.{kind})".replace("np.nan", "torch.nan").replace(
            "np.inf", "torch.inf"
        )
    if arrays == "jax":
        return f"jnp.array({numbers}, jnp.{'bool_' if kind == 'bool' else kind})"
    return f"np.array({numbers}, {_dtype(kind)})"


def _dtype(kind: str) -> str:
    return {"bool": "bool", "bfloat16": "ml_dtypes.bfloat16"}.get(kind, f"np.{kind}")


def _numbers(array: np.ndarray) -> str:
    """Nested lists. Floats have as many digits as their dtype needs."""
    if array.dtype.kind in "bui":
        return repr(array.tolist())
    if array.dtype == np.float64 or array.size == 0:
        return _nested(array.astype(np.float64), lambda x: f"{x:.10g}")
    wide = array if array.dtype == np.float32 else array.astype(np.float32)
    return _nested(wide, lambda x: str(x).removesuffix(".0"))


def _nested(array: np.ndarray, text) -> str:
    if array.ndim == 0:
        value = array[()]
        if np.isnan(value):
            return "np.nan"
        if np.isinf(value):
            return "np.inf" if value > 0 else "-np.inf"
        return text(value)
    return f"[{', '.join(_nested(part, text) for part in array)}]"
