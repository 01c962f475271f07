"""The forward pass of regard, with which the time of its statistics is compared."""

from __future__ import annotations

from ..cases import Inputs
from . import Form
from .regard_jit import forward


def forms(inputs: Inputs) -> list[Form]:
    return [forward(inputs)]
