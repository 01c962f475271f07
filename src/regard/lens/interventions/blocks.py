"""`Blocks`: the blocks of a model before the first changed layer give what they gave without interventions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class Blocks:
    """The blocks of a model, the entries of its lists of modules, and their outputs for one text, in the order in which
    they ended; None of a block that was called twice.
    """

    def __init__(self, model: torch.nn.Module):
        self.modules = dict(model.named_modules())
        self.outputs: dict[str, Any] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, outputs are kept."""

        def kept(path: str):
            def keep(module, given, out) -> None:
                self.outputs[path] = None if path in self.outputs else out

            return keep

        listed = [(path, module) for path, module in self.modules.items() if path.rpartition(".")[2].isdigit()]
        handles = [module.register_forward_hook(kept(path)) for path, module in listed]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextlib.contextmanager
    def reused(self, layer: str, copies: int) -> Iterator[None]:
        """Inside the block, blocks that ended before that of this layer return copies of what they have returned."""
        parts = layer.split(".")
        at = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
        siblings, own = ".".join(parts[:at]), ".".join(parts[: at + 1])
        ended = list(self.outputs)
        changed: dict[torch.nn.Module, Any] = {}
        for path in ended[: ended.index(own)] if own in ended else ():
            one = self.outputs[path]
            if path.rpartition(".")[0] == siblings and (out := _repeated(one, copies)) is not None:
                changed[self.modules[path]] = out
        before = {module: module.__dict__.get("forward") for module in changed}
        try:
            for module, out in changed.items():
                module.forward = lambda *_, out=out, **__: out
            yield
        finally:
            for module, forward in before.items():
                if forward is None:
                    module.__dict__.pop("forward", None)
                else:
                    module.forward = forward


def _repeated(out: Any, copies: int) -> Any:
    """Copies of the output of one entry; None of outputs that are not tensors, or tuples of them."""
    if isinstance(out, torch.Tensor):
        return out.expand(copies, *out.shape[1:]) if out.ndim and out.shape[0] == 1 else None
    if type(out) is not tuple:
        return None
    parts = [None if part is None else _repeated(part, copies) for part in out]
    return None if any(new is None and old is not None for new, old in zip(parts, out, strict=True)) else tuple(parts)
