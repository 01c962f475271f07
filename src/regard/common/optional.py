"""Packages that `pip install regard` does not bring: where one is missing, the error says which extra brings it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from .errors import refuse

__all__ = ["requires_extra"]

# The optional packages that regard itself imports. A model that misses a package of its own raises its own error.
PACKAGES = {"matplotlib", "safetensors", "starlette", "tokenizers", "torch", "transformers", "uvicorn"}


@contextlib.contextmanager
def requires_extra(where: str, extra: str) -> Iterator[None]:
    """Inside, a missing optional package raises `Refused` with the command that installs it; also a decorator.

    >>> @requires_extra("heatmap", "look")
    ... def draw():
    ...     import matplotlib
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in PACKAGES or importlib.util.find_spec(package) is not None:
            raise
        raise refuse(
            where,
            f"{package} is not installed",
            given=f"no package {package}",
            expected=f"the packages of regard[{extra}]",
            fix=f"pip install 'regard[{extra}]'",
        ) from error
