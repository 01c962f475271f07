"""The cases of an exercise: inputs that its chapter draws, the smallest first."""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

import numpy as np

from ..chapter import Exercise

Case = dict[str, Any]


def cases_of(exercise: Exercise) -> list[Case]:
    """The arguments of each case by name; the same in every run."""
    found: list[Case] = []
    rng = np.random.default_rng(7)

    def case(**arguments: Any) -> None:
        found.append(arguments)

    def whole(*shape: int) -> np.ndarray:
        """Small whole numbers: products can be computed by hand."""
        return rng.integers(-3, 4, shape).astype(np.float64)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    names: dict[str, Any] = {"case": case, "whole": whole, "normal": normal, "np": np, "rng": rng}
    if exercise.needs:
        names["torch"] = importlib.import_module("torch")
        names["filled"] = filled
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(exercise.cases, f"cases of {exercise.name}", "exec", dont_inherit=True), names)
    return found


def filled(module: Any, seed: int = 0) -> Any:
    """A torch module whose parameters are drawn again, each by its name and shape: two modules with the same names of
    parameters get the same numbers, in whatever order they were made.
    """
    torch = importlib.import_module("torch")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            rng = np.random.default_rng([seed, *name.encode()])
            drawn = rng.standard_normal(tuple(parameter.shape)) / max(parameter.shape[-1:] or [1]) ** 0.5
            parameter.copy_(torch.as_tensor(drawn, dtype=parameter.dtype))
    return module
