"""Values: what a model finds when it asks about its input, which has no values here: every truth value is False.

Models ask whether a token is padding, or whether a mask hides anything. Without values nothing is padding, and nothing
is hidden, so both are False. What a model checks (`torch._check`) is true. Questions for a number have no answer:
they stop the run, as torch does. A table that a model makes on the CPU, from sizes, loses its values where it meets a
tensor without values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
MIXES = {aten.copy_.default, aten._to_copy.default, aten.index.Tensor}  # these take tensors of two devices


class Unanswered(TorchDispatchMode):
    """Inside the mode, a truth value without data is False, and tensors of two devices can be combined."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        truth = operation is aten._local_scalar_dense.default and args[0].dtype is torch.bool
        if (truth or operation is aten.equal.default) and args[0].is_meta:
            return False
        if operation is aten._is_all_true.default and args[0].is_meta:
            return torch.ones((), dtype=torch.bool, device="cpu")
        kwargs = kwargs or {}
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if len({each.device.type for each in given}) > 1 and operation not in MIXES:
            args, kwargs = tree_map_only(torch.Tensor, lambda each: each.to("meta"), (args, kwargs))
        return operation(*args, **kwargs)
