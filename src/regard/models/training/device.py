"""Where a model computes: a device that is there, or the sentence that says which are."""

from __future__ import annotations

import torch

from ...common.errors import refuse

__all__ = ["check"]


def check(name: str, where: str) -> None:
    """Refuses a device that this machine does not have."""
    there = {"cpu": True, "cuda": torch.cuda.is_available()}
    if not there.get(name.split(":")[0], False):
        known = " or ".join(kind for kind, found in there.items() if found)
        raise refuse(where, "no such device", given=name, expected=known, fix=f"choose {known} with --device")
