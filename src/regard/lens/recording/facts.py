"""Facts: what a run should know of itself: versions, the hash of the weights, when it was."""

from __future__ import annotations

import datetime
import hashlib
import platform
import sys
from typing import Any

import torch

__all__ = ["facts", "hash_of"]


def facts(module, entry: int, **more: Any) -> dict[str, Any]:
    """Versions of the libraries that ran, the hash of the weights, the time, and what else is told."""
    from ... import __version__

    found = {
        name: getattr(sys.modules[name], "__version__", "")
        for name in ("numpy", "torch", "transformers")
        if name in sys.modules
    }
    return {
        "versions": {"regard": __version__, "python": platform.python_version(), **found},
        "weights": None if module is None else hash_of(module),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "entry": entry,
        "exact": "figures and lse are exact sums over all keys, in float32", **more,
    }  # fmt: skip


def hash_of(module) -> str:
    """SHA-256 over every weight and kept buffer by name: its name, dtype, sizes and bytes."""
    found = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()
