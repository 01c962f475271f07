"""What can be audited: a model that can be called and changed, and whose outputs can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..common.errors import refuse
from .subject import Raised, Subject, floats, named

COMPARED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def refuse_model(what: Any, inputs: Any) -> None:
    """Refuses what is not a model, and models and inputs without numbers or with numbers that cannot be read."""
    if isinstance(what, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise refuse(
            "audit",
            "TorchScript cannot be audited",
            type(what).__name__,
            "a module or function of Python, whose calls can be recorded and whose modules can be changed",
            "audit the module before torch.jit.script or torch.jit.trace",
        )
    named = what is None or isinstance(what, str | Path)
    if not named and (isinstance(what, type) or not callable(what)):
        raise refuse(
            "audit",
            "this is not a model",
            f"the class {what.__name__}" if isinstance(what, type) else f"{type(what).__name__} {what!r:.40}",
            "a model of transformers or the name of one, a torch module, a function of tensors, or a recorded run",
            f"pass an instance, {what.__name__}(…)" if isinstance(what, type) else "pass the model itself",
        )
    weights = [*what.parameters(), *what.buffers()] if isinstance(what, torch.nn.Module) else []
    for name, part in (*_tensors(inputs), *(("a weight", weight) for weight in weights)):
        if part.is_meta:
            raise refuse(
                "audit",
                "tensors on the meta device have no values",
                f"{name} of shape {tuple(part.shape)} on meta",
                "weights and inputs with values",
                "load the weights, model.to_empty(device='cpu') and load_state_dict, and pass inputs on that device",
            )
    for name, part in _tensors(inputs):
        if part.layout is not torch.strided or part.is_nested:
            raise refuse(
                "audit",
                "inputs are sparse or nested",
                f"{name} of layout {part.layout}",
                "dense tensors, which can be padded and put into a batch",
                "pass to_dense(), or to_padded_tensor(0) with a padding mask",
            )
        if 0 in part.shape:
            raise refuse(
                "audit",
                "an input is empty",
                f"{name} of shape {tuple(part.shape)}",
                "at least one position",
                "pass inputs of ordinary length, about 20 positions",
            )


def refuse_outputs(subject: Subject) -> None:
    """Refuses a model that does not run, and one whose outputs cannot be compared."""
    try:
        found = list(floats(subject.call(subject.inputs)))
    except Raised as error:
        raise refuse(
            "audit",
            "the model does not run",
            f"{subject.name}: {error}",
            "inputs that its forward accepts",
            "pass inputs=, tensors by name, batch first",
        ) from error
    for name, part in found:
        if part.layout is not torch.strided or part.is_nested or part.dtype not in COMPARED:
            raise refuse(
                "audit",
                "an output cannot be compared",
                f"{name}: {part.dtype} of layout {part.layout}{', nested' if part.is_nested else ''}",
                f"dense tensors of {', '.join(str(each).removeprefix('torch.') for each in COMPARED)}",
                "wrap the model in a function that returns to_dense(), to_padded_tensor(0) or float()",
            )
    if not found:
        raise refuse(
            "audit",
            "no output can be compared",
            f"{subject.name} returns no floating-point tensor",
            "at least one, such as hidden states or logits",
            "wrap the model in a function that returns them; torch.view_as_real for complex numbers",
        )


def _tensors(inputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among inputs, each with its name in words."""
    for name, part in named(inputs).items():
        if isinstance(part, torch.Tensor):
            yield "the input" if part is inputs else f"the input {name}", part
