"""An observer that numbers layers as they run, and knows which of them attend to another text."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from typing import Any

import torch

from ...common.module_settings import layer_number, path_pattern
from ...observe.observer import Observer, module_of

# Arguments through which transformers layers receive the hidden states of another text.
CROSS_ARGUMENTS = ("key_value_states", "encoder_hidden_states")


class LayerObserver(Observer):
    """Counts the runs of each module in a pass, which begins with the model, or with its generating submodule."""

    def __init__(self, model: Any, *, describing: bool = False):
        super().__init__(model, describing=describing)
        self.top: Any = module_of(model)
        self.begins = {each for each in self.modules.values() if hasattr(each, "prepare_inputs_for_generation")}
        self.entered: Counter[str] = Counter()  # how often each module ran in this pass
        self.numbers: dict[tuple[str, int], int] = {}  # the layer of each of these runs

    def begun(self) -> None:
        """Called when a pass begins."""
        self.entered.clear()
        self.numbers.clear()

    def _entered(self, module, args: tuple, kwargs: dict[str, Any]) -> None:
        super()._entered(module, args, kwargs)
        if module is self.top or module in self.begins:
            self.begun()
        self.entered[self.layer] += 1

    def module(self, layer: str) -> Any:
        """The module of a layer; the model itself has the name of its class."""
        return self.modules.get(layer, self.top)

    def layer_number(self, name: str) -> int | None:
        """The number of the layer; a module that runs again in one pass, as in ALBERT, is the next layer each time."""
        number, run = layer_number(self.module(name), name), self.entered[name]
        if number is None or (name, run) in self.numbers:
            return self.numbers.get((name, run))
        alike = {key: of for key, of in self.numbers.items() if path_pattern(key[0]) == path_pattern(name)}
        repeats = run > 1 or (number in alike.values() and any(runs > 1 for _, runs in alike))
        self.numbers[name, run] = found = max(alike.values(), default=-1) + 1 if repeats else number
        return found

    def crosses(self) -> bool:
        """Whether the running layer attends to keys of another text (cross-attention)."""
        running = self.stack[-1] if self.stack else None
        if running is None:
            return False
        if any(isinstance(running.kwargs.get(name), torch.Tensor) for name in CROSS_ARGUMENTS):
            return True
        module = self.module(running.name)
        words = list(inspect.signature(module.forward).parameters)[:2] if module is not None else []
        pair = [running.kwargs.get(word, value) for word, value in itertools.zip_longest(words, running.args[:2])]
        return words == ["query", "key"] and pair[0] is not pair[1]
