"""Engines: who computes. One file each; nothing is imported before it is asked to take part.

An engine's file has `forms(inputs)`: the ways in which this engine can compute the case, ready to be called. If it has
several, the fastest one that is right takes part. What the engine cannot express it refuses, and the refusal becomes a
footnote.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.errors import Refused, refuse
from ..cases import Inputs

__all__ = ["ENGINES", "Engine", "Form", "cannot"]


@dataclass(frozen=True)
class Form:
    """One way of computing a case: `run()` is timed; `read(run())` is its result: out (B, H, Q, E), the gradients of q,
    k and v, or what `truth.Truth` checks of statistics.
    """

    label: str
    run: Callable[[], Any]
    read: Callable[[Any], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Engine:
    """An engine by its short name; `packages` must be installed for `file` to be imported. tasks: what it is asked
    for.
    """

    name: str
    title: str
    file: str
    packages: tuple[str, ...]
    tasks: tuple[str, ...] = ("forward", "decode")

    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if importlib.util.find_spec(package) is None]

    def version(self) -> str:
        """Of the package that does the work."""
        if not self.packages:
            return importlib.import_module("regard").__version__
        return importlib.metadata.version(self.packages[0])

    def forms(self, inputs: Inputs) -> list[Form]:
        """Every way this engine knows to compute the case, or `Refused`."""
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


def cannot(engine: str, what: str, takes: str, mend: str) -> Refused:
    """The refusal of an engine that has no way to say what a case asks."""
    return refuse(engine, f"no {what}", given=f"a case with {what}", expected=takes, fix=mend)
