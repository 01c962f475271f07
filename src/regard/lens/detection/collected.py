"""The figures of all heads, collected from one run after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ...common.errors import Reason
from ..runs.run import Run
from .head_scores import HeadScore, HeadScores
from .running import Running

LeftOut: TypeAlias = Sequence[tuple[str, Sequence[Reason]]]


class Collected:
    """The figures of the heads of all texts so far.

    Calls of two texts are the same if they have the same name, and the same number among the calls of that name.
    """

    def __init__(self, detectors: Sequence[str]):
        self.detectors = detectors
        self.texts, self.model = 0, ""
        self.calls: dict[tuple[str, int], tuple[int, dict[str, Running]]] = {}

    def add(self, name: str, run: Run) -> None:
        """Adds the figures of one text."""
        self.texts, self.model = self.texts + 1, run.model
        seen: Counter[str] = Counter()
        for number, call in enumerate(run.calls):
            key = call.name, seen[call.name]
            seen[call.name] += 1
            layer = number if call.layer is None else call.layer
            _, held = self.calls.setdefault(key, (layer, {each: Running(call.shape[0]) for each in self.detectors}))
            for each in self.detectors:
                if each in call.figures:
                    held[each].add(name, call.figures[each])

    def scores(self, detectors: Mapping[str, str], left_out: LeftOut) -> HeadScores:
        """The result."""
        said = ((name, "; ".join(f"{each.what}: {each.given}" for each in reasons)) for name, reasons in left_out)
        layers = tuple(name for name, _ in self.calls)
        found = {each: tuple(self._of(each)) for each in self.detectors}
        return HeadScores(self.model, self.texts, layers, detectors, found, tuple(said))

    def _of(self, detector: str) -> Iterator[HeadScore]:
        for (call, _), (layer, held) in self.calls.items():
            found = held[detector]
            for head, (mean, deviation) in enumerate(zip(found.mean.tolist(), found.deviation.tolist(), strict=True)):
                most = tuple((name, value) for value, name in found.most[head])
                yield HeadScore(detector, call, layer, head, mean, deviation, int(found.count[head]), most)
