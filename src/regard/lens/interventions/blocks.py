"""The blocks of a model: what they return for one text, and passes in which some are not computed again."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ...common.errors import refuse


def block_of(layer: str) -> str:
    """The path of the block of a layer, up to its first number."""
    parts = layer.split(".")
    return ".".join(parts[: next((place + 1 for place, part in enumerate(parts) if part.isdigit()), 0)])


@contextlib.contextmanager
def hooked(modules: Iterable[torch.nn.Module], keep: Callable[..., None]) -> Iterator[None]:
    """Inside the block, keep(module, args, named, out) is called after each of these modules in this thread."""
    thread = threading.get_ident()

    def hook(*call: Any) -> None:
        if threading.get_ident() == thread:
            keep(*call)

    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Blocks:
    """The blocks of a model, the entries of its lists of modules, and their outputs for one text, in the order in which
    they ended; None of a block that was called twice.
    """

    def __init__(self, model: torch.nn.Module):
        self.modules = dict(model.named_modules())
        self.outputs: dict[str, Any] = {}

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block, outputs are kept."""
        paths = {module: path for path, module in self.modules.items() if path.rpartition(".")[2].isdigit()}

        def keep(module: torch.nn.Module, args: Any, named: Any, out: Any) -> None:
            path = paths[module]
            self.outputs[path] = None if path in self.outputs else out

        return hooked(paths, keep)

    def streams(self, layers: Iterable[str]) -> dict[str, torch.Tensor]:
        """What the blocks of these layers return, in the list of modules in which the last one is. Refused: blocks that
        do not return a stream.
        """
        paths = dict.fromkeys(map(block_of, layers))
        siblings = list(paths)[-1].rpartition(".")[0]
        found = {path: _first(_copies(self.outputs.get(path), 1)) for path in paths if path.startswith(siblings)}
        for path, out in found.items():
            if not isinstance(out, torch.Tensor) or out.ndim != 3:
                given, expected = path or "layers without blocks", "a stream of one entry, from a block called once"
                raise refuse("effects", "the stream after a block is not known", given, expected, "use of='layers'")
        return found

    @contextlib.contextmanager
    def reused(self, layer: str, copies: int, rows: list[int] | None, value: Any) -> Iterator[None]:
        """Inside the block, blocks that ended before that of this layer began return copies of what they have returned.
        With rows, that block, too, with the value in this row of each copy.
        """
        own, ended = block_of(layer), list(self.outputs)
        changed: dict[torch.nn.Module, Any] = {}
        for path in ended[: ended.index(own)] if own in ended else ():
            out = None if path.startswith(f"{own}.") else _copies(self.outputs[path], copies)
            if out is not None:
                changed[self.modules[path]] = out
        if rows is not None:
            out = _copies(self.outputs[own], copies)
            patched = _first(out).clone()
            at = torch.arange(copies), rows
            patched[at] = value.expand(copies, -1, -1)[at]
            changed[self.modules[own]] = (patched, *out[1:]) if isinstance(out, tuple) else patched
        before = {module: vars(module).get("forward") for module in changed}
        thread = threading.get_ident()

        def forward(out: Any, usual: Callable[..., Any], *args: Any, **named: Any) -> Any:
            return out if threading.get_ident() == thread else usual(*args, **named)

        try:
            for module, out in changed.items():
                module.forward = functools.partial(forward, out, module.forward)
            yield
        finally:
            for module, usual in before.items():
                vars(module).pop("forward", None)
                if usual is not None:
                    module.forward = usual


def _first(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) and out else out


def _copies(out: Any, copies: int) -> Any:
    """Copies of the output of one entry; None of outputs that are not tensors, or tuples of them."""
    if isinstance(out, torch.Tensor):
        return out.expand(copies, *out.shape[1:]) if out.ndim and out.shape[0] == 1 else None
    if type(out) is not tuple:
        return None
    parts = [None if part is None else _copies(part, copies) for part in out]
    return None if any(new is None and old is not None for new, old in zip(parts, out, strict=True)) else tuple(parts)
