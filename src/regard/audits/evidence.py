"""The evidence of a finding as a short script that shows it without regard."""

from __future__ import annotations

import re
from typing import Any

from .subject import Subject


def script(subject: Subject, output: str, *lines: str) -> str:
    """A script of these lines, after `read`, which takes an output from what the model returns, and `run`, which
    returns that output for inputs.

    In the script `model` is the model, in evaluation mode, and `inputs` are the inputs of the audit, by name. "" where
    the audit knows these in other forms than the model takes.
    """
    if subject.forms:
        return ""
    given = [f"inputs[{name!r}]" for name in subject.inputs] if subject.ordered else ["**inputs"]
    call = ", ".join([*given, *(f"{name}={value!r}" for name, value in subject.fixed.items())])
    path = re.sub(r"\.?([A-Za-z_]\w*)", r"['\1']", output).removeprefix("['output']")
    begin = f"read = lambda result: result{path}\nrun = lambda inputs: read(model({call}))"
    return "\n".join(["import torch", "torch.set_grad_enabled(False)", begin, *lines])


def written(part: Any) -> str:
    """A tensor in a script: its numbers if it is of whole numbers, such as tokens; others are random there."""
    if part.is_floating_point():
        return f"torch.randn({tuple(part.shape)}).to({part.dtype})"
    return f"torch.tensor({part.tolist()})"
