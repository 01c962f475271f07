"""Packages that `pip install regard` does not bring: where one is missing, the error says which extra brings it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from .errors import Reason, Refused

# The optional packages that regard itself imports. A model that misses a package of its own raises its own error.
PACKAGES = {
    "PIL",
    "markdown_it",
    "matplotlib",
    "pygments",
    "safetensors",
    "starlette",
    "tokenizers",
    "torch",
    "transformers",
    "uvicorn",
}


class MissingPackage(Refused, ModuleNotFoundError):
    """The refusal of what needs a package that is not installed; for `except ImportError`, an ImportError, too."""

    def __reduce__(self):
        return MissingPackage, (self.where, self.reasons)


def needs(where: str, extra: str, *packages: str) -> None:
    """Raises `MissingPackage`, with all packages that are missing, before work begins that would fail without them."""
    missing = [_missing(name, extra) for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackage(where, missing)


@contextlib.contextmanager
def requires_extra(where: str, extra: str) -> Iterator[None]:
    """Inside, a missing optional package raises `MissingPackage` with the command that installs it; also a decorator.

    >>> @requires_extra("heatmap", "look")
    ... def draw():
    ...     import matplotlib
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if isinstance(error, MissingPackage):
            raise
        if package not in PACKAGES or importlib.util.find_spec(package) is not None:
            raise
        raise MissingPackage(where, [_missing(package, extra)]) from error


def _missing(package: str, extra: str) -> Reason:
    return Reason(
        f"{package} is not installed",
        f"no package {package}",
        f"the packages of regard[{extra}]",
        f"pip install 'regard[{extra}]'",
    )
