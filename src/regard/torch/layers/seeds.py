"""Dropout of a layer: in training it draws a seed from torch's generator, so that manual_seed and checkpointing repeat
it.
"""

from __future__ import annotations

import torch

__all__ = ["dropped"]


def dropped(rate: float, training: bool) -> dict:
    """The arguments `dropout` and `seed` of attention, or none of them outside of training.

    >>> dropped(0.1, training=False)
    {}
    """
    return {"dropout": rate, "seed": torch.randint(2**62, ())} if training and rate else {}
