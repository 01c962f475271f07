"""What stands along one side of a matrix: the tokens of a text, the patches of a picture, or plain positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...common.errors import Reason, Refused

__all__ = ["Axis", "Segment"]


@dataclass(frozen=True)
class Segment:
    """A stretch of an axis with a name of its own, such as a system prompt or a document: positions start … stop −
    1.
    """

    start: int
    stop: int
    name: str


@dataclass(frozen=True)
class Axis:
    """Positions in a row, each with its words.

    name: "text", "source", "target", "patches", … · tokens: as they should be read, still untrusted · special: true
    where the tokenizer or the model, not the text, put the token · grid: (rows, columns) of patches, which are the
    tokens that are not special, in reading order · picture: the PNG file that the patches were cut from · segments: in
    order, without overlaps.
    """

    name: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    grid: tuple[int, int] | None = None
    picture: bytes | None = None
    segments: tuple[Segment, ...] = ()

    def __post_init__(self):
        reasons = []
        if not self.tokens:
            reasons.append(
                Reason(
                    "nothing to look at",
                    given=f"axis {self.name!r} of 0 tokens",
                    expected="at least one",
                    fix="give a text",
                )
            )
        if len(self.special) != len(self.tokens):
            reasons.append(
                Reason(
                    "flags that do not fit the tokens",
                    given=f"{len(self.special)} flags, {len(self.tokens)} tokens",
                    expected="one flag per token",
                    fix="mark each token as special or not",
                )
            )
        elif self.grid is not None and self.grid[0] * self.grid[1] != self.special.count(False):
            reasons.append(
                Reason(
                    "a grid that does not fit the patches",
                    given=f"{self.grid[0]} × {self.grid[1]} for {self.special.count(False)} patches",
                    expected="one cell per patch",
                    fix="check the patch size",
                )
            )
        at = 0
        for part in self.segments:
            if not at <= part.start < part.stop <= len(self.tokens):
                reasons.append(
                    Reason(
                        "segments that do not fit the axis",
                        given=f"{part}",
                        expected=f"in order, within {len(self.tokens)} tokens",
                        fix="sort them, and cut them to the axis",
                    )
                )
            at = part.stop
        if reasons:
            raise Refused("Axis", reasons)

    @classmethod
    def of(cls, tokens: Sequence[str] | int, special: Sequence[bool] | None = None, name: str = "text") -> Axis:
        """An axis of these tokens, or of so many positions; none is special unless it is said.

        >>> Axis.of(3).tokens
        ('0', '1', '2')
        """
        words = tuple(map(str, range(tokens))) if isinstance(tokens, int) else tuple(tokens)
        return cls(name, words, (False,) * len(words) if special is None else tuple(map(bool, special)))

    def __len__(self) -> int:
        return len(self.tokens)
