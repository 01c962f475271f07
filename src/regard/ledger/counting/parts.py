"""Parts: to which layer, and to which part of it, a module of a model belongs."""

from __future__ import annotations

import re

from torch import nn

from .modules import is_experts

Key = tuple[str, int | None, str]  # stack, number of the layer, part
STATE = re.compile(r"mamba|deltanet|rwkv|recurrent|linear_?attention|short_?conv|lightning|xlstm", re.I)
ATTENTION = re.compile(r"attention|attn", re.I)
PROJECTION = re.compile(r"attn|attention|qkv|query|key|value|(^|[._])[qkvo](_|$)|proj_?[qkvo]?$", re.I)
EXPERTS = re.compile(r"moe|experts|sparse", re.I)
NORM = re.compile(r"norm", re.I)


class Places:
    """The parts of one model. attending: paths of the modules that called transformers' attention interface."""

    def __init__(self, model: nn.Module, attending: list[str]):
        self.modules = dict(model.named_modules(remove_duplicate=False))
        self.attending = set(attending)
        head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        tables = {id(each.weight) for each in self.modules.values() if isinstance(each, nn.Embedding)}
        self.heads = {
            path
            for path, module in self.modules.items()
            if module is head or (isinstance(module, nn.Linear) and id(module.weight) in tables)
        }
        self._found: dict[str, Key] = {}

    def of(self, path: str) -> Key:
        """The part that a module with parameters belongs to."""
        if path not in self._found:
            self._found[path] = (*self.layer(path), self._part(path))
        return self._found[path]

    def layer(self, path: str) -> tuple[str, int | None]:
        """(stack, number) of the layer: the first part of the path that is a number."""
        names = path.split(".")
        for at, name in enumerate(names):
            if name.isdigit():
                return ".".join(names[:at]), int(name)
        return "", None

    def attention(self, path: str) -> Key:
        """The line of scores and values of a module that attends."""
        return (*self.layer(path), "attention")

    def states(self, path: str) -> Key:
        """The line of the recurrences of a module."""
        return (*self.layer(path), "states")

    def result_of(self, path: str) -> Key:
        """The line of a product of two results: of a module's own attention, its recurrent state, or outside both."""
        stack, number = self.layer(path)
        if self._inside(path, STATE):
            return stack, number, "states"
        return stack, number, "attention" if number is not None or self._inside(path, ATTENTION) else "other"

    def _part(self, path: str) -> str:
        module = self.modules[path]
        if path in self.heads:
            return "head"
        if isinstance(module, nn.Embedding):
            return "embedding"
        if NORM.search(type(module).__name__):
            return "norms"
        if self._inside(path, STATE):
            return "projections"
        around = [each for each in self.attending if path == each or path.startswith(f"{each}.") or not each]
        if around:
            whole = max(around, key=len) in ("", ".".join(filter(None, map(str, self.layer(path)))))
            return "projections" if not whole or PROJECTION.search(path) else "feed-forward"
        if is_experts(module) or self._inside(path, EXPERTS):
            return "experts"
        if self._inside(path, ATTENTION):
            return "projections"
        return "feed-forward" if self.layer(path)[1] is not None else "other"

    def _inside(self, path: str, pattern: re.Pattern[str]) -> bool:
        """Whether the module or one around it, within its layer, has such a class."""
        names = path.split(".")
        outer = len(self.layer(path)[0].split(".")) + 1 if self.layer(path)[1] is not None else 0
        around = [".".join(names[:end]) for end in range(outer + 1, len(names) + 1)]
        return any(pattern.search(type(self.modules[each]).__name__) for each in around if each in self.modules)
