"""What every head of a model does over many texts: the result of `detect_heads`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.errors import refuse
from ...common.text.units import counted

# The detectors by the names of their figures, and the keys that they measure the weight on.
KINDS = {
    "previous": "the previous token",
    "duplicate": "the same token before",
    "induction": "what followed it before",
    "first": "the first key",
    "itself": "the token itself",
}


@dataclass(frozen=True)
class HeadScore:
    """How much weight one head has on the keys of one detector, over the texts.

    Args:
        detector: the name of the detector.
        call: the name of the layer in the model.
        layer: the number of the layer, or of the call if layers have no numbers.
        head: the number of the head.
        mean: the mean over the texts, 0 … 1; NaN if no text has such keys.
        deviation: the standard deviation over the texts; NaN for fewer than two texts.
        texts: the number of texts that have such keys.
        most: (text, value) of the texts with the largest values, in descending order, at most three.

    Examples:
        >>> from regard.lens import HeadScore
        >>> HeadScore("previous", "h.2.attn", 2, 7, 0.98, 0.01, 2, (("a.txt", 0.99), ("b.txt", 0.97))).name
        '2.7'
    """

    detector: str
    call: str
    layer: int
    head: int
    mean: float
    deviation: float
    texts: int
    most: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        """The layer and the head, such as "2.7"."""
        return f"{self.layer}.{self.head}"

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON, without its place; NaN becomes None."""
        return {
            "mean": _number(self.mean),
            "deviation": _number(self.deviation),
            "texts": self.texts,
            "most": [{"text": text, "value": value} for text, value in self.most],
        }


@dataclass(frozen=True, eq=False)
class HeadScores:
    """What every head of a model does over many texts. `regard.lens.detect_heads` returns it.

    Args:
        model: the name of the model.
        texts: the number of texts that the model was run on.
        layers: the names of the attention calls, in order.
        detectors: the detectors by name: the keys that each measures the weight on.
        scores: the scores of each detector: of every head, by layer and head.
        left_out: (text, reason) of the texts that could not be read or recorded.

    Examples:
        >>> from regard.lens import HeadScore, HeadScores
        >>> score = HeadScore("first", "attention", 0, 0, 0.5, 0.1, 2, (("a.txt", 0.6),))
        >>> found = HeadScores("toy", 2, ("attention",), {"first": "the first key"}, {"first": (score,)}, ())
        >>> found.best("first")[0].mean
        0.5
    """

    model: str
    texts: int
    layers: tuple[str, ...]
    detectors: Mapping[str, str]
    scores: Mapping[str, tuple[HeadScore, ...]]
    left_out: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        heads = counted(len(next(iter(self.scores.values()), ())), "head")
        return f"<HeadScores of {self.model}: {heads}, {counted(self.texts, 'text')}, {', '.join(self.detectors)}>"

    def best(self, detector: str, count: int = 3) -> tuple[HeadScore, ...]:
        """The heads with the largest mean.

        Args:
            detector: the name of the detector.
            count: the most heads.

        Returns:
            Their scores, in descending order; heads without a value are left out.

        Raises:
            Refused: an unknown detector.
        """
        if detector not in self.scores:
            raise refuse(
                "HeadScores.best",
                "no such detector",
                repr(detector),
                f"one of {', '.join(self.scores)}",
                "choose among these, or pass measures= to detect_heads",
            )
        known = [score for score in self.scores[detector] if score.texts]
        return tuple(sorted(known, key=lambda score: -score.mean)[:count])

    def to_json(self) -> dict[str, Any]:
        """The scores as plain JSON: what `regard look --json` prints.

        Returns:
            "model", "texts", "detectors", "heads" (one for each head, with its scores by detector), "left_out".
        """
        rows = zip(*self.scores.values(), strict=True)
        heads = [
            {
                "call": row[0].call,
                "layer": row[0].layer,
                "head": row[0].head,
                "scores": {score.detector: score.to_json() for score in row},
            }
            for row in rows
        ]
        return {
            "model": self.model,
            "texts": self.texts,
            "detectors": dict(self.detectors),
            "heads": heads,
            "left_out": [{"text": text, "reason": reason} for text, reason in self.left_out],
        }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
