"""Functions that are not operators of torch: torch.compile leaves them to Python, or says what to do instead."""

from __future__ import annotations

import functools
import sys
import types
from typing import TypeVar

from .interception import compiling
from .types import Function

__all__ = ["methods_outside_programs", "outside_programs"]

Class = TypeVar("Class", bound=type)


def outside_programs(function: Function) -> Function:
    """Decorates a function that torch.compile must not trace into: the program is split before and after its call.

    With fullgraph=True, torch raises an error with the message given here.
    """
    message = (
        f"regard: {function.__qualname__} is computed by NumPy and compiled kernels, and cannot be in a graph. Call it "
        "outside the compiled function, or compile without fullgraph=True. regard.attention and "
        "regard.attention_with_lse can be in a graph."
    )

    @functools.wraps(function)
    def call(*args, **kwargs):
        if compiling():
            torch = sys.modules["torch"]
            torch._dynamo.graph_break(msg=f"{message}")
            return torch.compiler.disable(function)(*args, **kwargs)
        # Between the graphs of a program torch.compile would look at every function that is called.
        if "torch._dynamo" in sys.modules:
            torch = sys.modules["torch"]
            if torch._C._dynamo.eval_frame.get_eval_frame_callback() is not None:
                return torch.compiler.disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def methods_outside_programs(cls: Class) -> Class:
    """Decorates the constructor and the public methods of a class with `outside_programs`."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, outside_programs(member))
    return cls
