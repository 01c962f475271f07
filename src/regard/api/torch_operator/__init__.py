"""Attention as an operator of torch.

eager       calls outside every transform of torch, with autograd; the same for calls like an earlier one
operator    `torch.ops.regard.attention`, its backward pass and its forward-mode derivative, on each device, and under
            autograd, torch.func and torch.compile
record      calls that torch compiles, transforms or traces, as that one operator
onnx        calls inside torch.onnx.export: the standard operator Attention
"""

from .eager import again, attend
from .record import recorded

__all__ = ["again", "attend", "recorded"]
