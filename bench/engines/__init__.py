"""The engines that are compared, one file each; an engine is imported only when it is used.

Each file defines `forms(inputs)`: the implementations by which the engine can compute the case, ready to be called. If
there are several, the fastest correct one is used. It raises `Refused` for unsupported cases, which becomes a footnote.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.common.errors import Refused, refuse

from ..cases import Inputs

__all__ = ["ENGINES", "Engine", "Form", "unsupported"]


@dataclass(frozen=True)
class Form:
    """One implementation of a case: `run()` is timed; `read(run())` is the result: out (B, H, Q, E), the gradients of
    q, k and v, or the statistics that `accuracy.Truth` checks.
    """

    label: str
    run: Callable[[], Any]
    read: Callable[[Any], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Engine:
    """An engine; `packages` must be installed to import `file`. tasks: the tasks in which it is compared."""

    name: str
    title: str
    file: str
    packages: tuple[str, ...]
    tasks: tuple[str, ...] = ("forward", "decode")

    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if importlib.util.find_spec(package) is None]

    def version(self) -> str:
        """The version of the main package."""
        if not self.packages:
            return importlib.import_module("regard").__version__
        return importlib.metadata.version(self.packages[0])

    def forms(self, inputs: Inputs) -> list[Form]:
        """Every form of the case that this engine supports; raises `Refused` if there are none."""
        return importlib.import_module(f".{self.file}", __name__).forms(inputs)


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("regard", "regard", "regard_jit", (), ("forward", "decode", "gradients", "statistics")),
        Engine("forward", "regard's forward", "regard_forward", (), ("statistics",)),
        Engine("sdpa", "torch SDPA", "torch_sdpa", ("torch",), ("forward", "decode", "gradients")),
        Engine("eager", "torch eager", "torch_eager", ("torch",)),
        Engine("flex", "torch FlexAttention", "torch_flex", ("torch",)),
        Engine("onnxruntime", "ONNX Runtime", "onnx_runtime", ("onnxruntime", "onnx")),
        Engine("openvino", "OpenVINO", "open_vino", ("openvino",)),
        Engine("jax", "JAX", "jax_xla", ("jax",), ("forward", "decode", "gradients")),
    )
}


def unsupported(engine: str, what: str, supported: str, fix: str) -> Refused:
    """The exception of an engine that does not support a feature of a case."""
    return refuse(engine, f"no {what}", f"a case with {what}", supported, fix)
