"""Functions that are not operators of torch: torch.compile leaves them to Python, or says what to do instead."""

from __future__ import annotations

import functools
import sys
import types
from typing import TypeVar

from .arrays import is_tensor
from .call_hooks import compiling, torch_if_imported
from .errors import refuse
from .public import Function
from .text.keywords import known_keywords

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
    plain = known_keywords(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        if compiling():
            torch = torch_if_imported()
            torch._dynamo.graph_break(msg=f"{message}")
            return torch.compiler.disable(function)(*args, **kwargs)
        torch = torch_if_imported()
        if torch is not None:
            for each in (*args, *kwargs.values()):
                if is_tensor(each) and _lost(each):
                    raise refuse(
                        function.__qualname__,
                        "a program that torch records, or a derivative, would not contain this call",
                        "a tensor inside make_fx, torch.jit.trace or forward-mode differentiation",
                        "a call outside; regard.attention and regard.attention_with_lse are recorded",
                        "call it before or after, on tensor.detach()",
                    )
        # Between the graphs of a program torch.compile would look at every function that is called.
        traces = torch is not None and "torch._dynamo" in sys.modules
        if traces and torch._C._dynamo.eval_frame.get_eval_frame_callback() is not None:
            return torch.compiler.disable(function)(*args, **kwargs)
        return plain(*args, **kwargs)

    return call  # type: ignore[return-value] # it takes what `function` takes


def _lost(tensor) -> bool:
    """Whether the result of a computation outside torch would be a constant for something that looks at its operators:
    the programs of make_fx and torch.jit.trace, and a tangent.
    """
    torch = sys.modules["torch"]
    if torch._C._is_tracing() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        return True
    level = torch.autograd.forward_ad._current_level
    return level >= 0 and torch.autograd.forward_ad.unpack_dual(tensor, level=level).tangent is not None


def methods_outside_programs(cls: Class) -> Class:
    """Decorates the constructor and the public methods of a class with `outside_programs`."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, types.FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, outside_programs(member))
    return cls
