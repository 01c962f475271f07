"""The provenance of a run: library versions, the hash of the weights, and the date."""

from __future__ import annotations

import datetime
import hashlib
import platform
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np


def facts() -> dict[str, Any]:
    """The versions of the imported libraries, the date, and how exact the numbers are."""
    names = ("regard", "numpy", "torch", "transformers")
    found = {name: getattr(sys.modules[name], "__version__", "") for name in names if name in sys.modules}
    return {
        "versions": {"python": platform.python_version(), **found},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "exact": "figures and lse are sums over all keys",
    }


def hash_of(weights: Iterable[tuple[str, str, np.ndarray]]) -> str:
    """SHA-256 of weights (name, dtype, array), sorted by name: names, dtypes, shapes and bytes."""
    found = hashlib.sha256()
    for name, dtype, array in sorted(weights, key=lambda weight: weight[0]):
        found.update(f"{name} {dtype} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
