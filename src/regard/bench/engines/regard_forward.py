"""A forward pass of regard, which its statistics are compared with: they would be free if they took as long."""

from __future__ import annotations

from ..cases import Inputs
from . import Form
from .regard_jit import forward


def forms(inputs: Inputs) -> list[Form]:
    return [forward(inputs)]
