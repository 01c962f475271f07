"""The axis of an attention matrix: the tokens of a text, the patches of an image, or plain positions."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...common.errors import Reason, Refused
from ...common.text.units import counted
from ...language.expr import Table, frozen_table
from .labels import visible

IMAGE = "image"  # a segment of a text that has patches in the place of words


@dataclass(frozen=True)
class Segment:
    """A named range of positions of an axis, such as a system prompt or a document.

    Args:
        start: the first position.
        stop: the position after the last.
        name: the name of the segment.

    Examples:
        >>> from regard.lens import Segment
        >>> Segment(0, 3, "prompt").name
        'prompt'
    """

    start: int
    stop: int
    name: str


@dataclass(frozen=True)
class Axis:
    """The positions along one side of an attention matrix, each with its token.

    Args:
        name: the name of the axis: "text", "source", "target", "patches", …
        tokens: the text of each position. It is untrusted: escape it before it is shown.
        special: for each position, whether the tokenizer or the model added the token.
        grid: (rows, columns) of image patches, or None. The patches are, row by row, the tokens that are not special,
            or in a text those of the segments "image".
        picture: the image that the patches were cut from, as a PNG file, or None.
        tiles: (rows, columns, top, left) of each of several images in this grid, in the order of their patches.
        segments: named ranges, in order and without overlaps.
        ids: the numbers of the tokens in the vocabulary, or None; known while a run is recorded, and not saved.
        unknown: (position, characters) of each token that replaces characters which the vocabulary lacks, such as
            "[UNK]", in order.

    Raises:
        Refused: listing every problem: an empty axis, `special` or `ids` of another length, a grid that does not fit
            the patches, segments outside the axis or out of order, and `unknown` outside the axis, out of order or
            without characters.

    Examples:
        >>> from regard.lens import Axis
        >>> axis = Axis("text", ("[CLS]", "a", " b"), (True, False, False))
        >>> len(axis), axis.tokens[1]
        (3, 'a')
    """

    name: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    grid: tuple[int, int] | None = None
    picture: bytes | None = None
    segments: tuple[Segment, ...] = ()
    ids: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    unknown: tuple[tuple[int, str], ...] = ()
    tiles: tuple[tuple[int, int, int, int], ...] = ()

    def __post_init__(self) -> None:
        if reasons := list(self._faults()):
            raise Refused("Axis", reasons)

    def _faults(self) -> Iterator[Reason]:
        tokens = counted(len(self.tokens), "token")
        if not self.tokens:
            given, fix = f"axis {self.name!r} of 0 tokens", "pass a text with at least one token"
            yield Reason("an empty axis", given, "at least one token", fix)
        if self.ids is not None and len(self.ids) != len(self.tokens):
            given, fix = f"{counted(len(self.ids), 'id')}, {tokens}", "pass one id for each token, or none"
            yield Reason("ids that do not fit the tokens", given, "one id per token", fix)
        if len(self.special) != len(self.tokens):
            given, fix = f"{counted(len(self.special), 'flag')}, {tokens}", "pass one boolean for each token"
            yield Reason("flags that do not fit the tokens", given, "one flag per token", fix)
        elif self.grid is not None and not self._fits():
            patches = counted(len(self.patches), "patch", "patches")
            given = f"{' and '.join(f'{rows} × {columns}' for rows, columns, *_ in self.layout)} for {patches}"
            yield Reason("a grid that does not fit the patches", given, "one cell per patch", "check the patch size")
        at = 0
        for part in self.segments:
            if not at <= part.start < part.stop <= len(self.tokens):
                expected, fix = f"in order, within {tokens}", "sort the segments, and clip them to the axis"
                yield Reason("segments that do not fit the axis", f"{part}", expected, fix)
            at = part.stop
        places = [-1, *(position for position, _ in self.unknown), len(self.tokens)]
        if sorted(set(places)) != places or not all(characters for _, characters in self.unknown):
            yield Reason(
                "unknown tokens that do not fit the axis",
                f"unknown={self.unknown}"[:80],
                f"characters at rising positions within {tokens}",
                "pass (position, characters) of each unknown token, in order",
            )

    def _fits(self) -> bool:
        """Whether each patch has a cell of its own."""
        (high, wide), count = self.grid or (0, 0), len(self.patches)
        if sum(rows * columns for rows, columns, *_ in self.layout) != count:
            return False
        cells = {(i, j) for m, n, top, left in self.layout for i in range(top, top + m) for j in range(left, left + n)}
        return len(cells) == count and all(0 <= i < high and 0 <= j < wide for i, j in cells)

    @property
    def layout(self) -> tuple[tuple[int, int, int, int], ...]:
        """(rows, columns, top, left) of each image in the grid; of one, the whole grid."""
        return self.tiles or (() if self.grid is None else ((*self.grid, 0, 0),))

    @property
    def image(self) -> list[int] | None:
        """The positions of the patches in a text; None if there are none, or nothing but patches."""
        found = [i for part in self.segments if part.name == IMAGE for i in range(part.start, part.stop)]
        return found if found and self.grid is not None else None

    @property
    def patches(self) -> Sequence[int]:
        """The positions of the patches, row by row."""
        return self.image or [i for i, marked in enumerate(self.special) if not marked]

    @classmethod
    def of(
        cls,
        tokens: Sequence[str] | int,
        special: Sequence[bool] | None = None,
        name: str = "text",
        ids: Sequence[int] | None = None,
        unknown: Sequence[tuple[int, str]] = (),
    ) -> Axis:
        """An axis of these tokens, or of `tokens` plain positions.

        Args:
            tokens: the text of each position, or the number of positions.
            special: for each position, whether it is a special token; None means that none is.
            name: the name of the axis.
            ids: the numbers of the tokens in the vocabulary.
            unknown: (position, characters) of each token that replaces characters which the vocabulary lacks.

        Returns:
            The axis. Plain positions have their numbers as tokens.

        Raises:
            Refused: an empty axis, a `special` of another length, or `unknown` that does not fit.

        Examples:
            >>> from regard.lens import Axis
            >>> Axis.of(3).tokens
            ('0', '1', '2')
        """
        words = tuple(map(str, range(tokens))) if isinstance(tokens, int) else tuple(tokens)
        flags = (False,) * len(words) if special is None else tuple(map(bool, special))
        known = None if ids is None else tuple(map(int, ids))
        return cls(name, words, flags, ids=known, unknown=tuple(unknown))

    @functools.cached_property
    def token(self) -> Table:
        """The tokens as a table for rules: their numbers in the vocabulary; if these are not known, equal tokens have
        equal numbers.

        Examples:
            >>> from regard.lens import Axis
            >>> token = Axis.of(["a", "b", "a"]).token
            >>> import regard as rg
            >>> token[rg.query] == token[rg.key]
            token[query] == token[key]
        """
        # Some models have one token for a word with and without a space before it, others have two.
        known = np.unique(self.tokens, return_inverse=True)[1] if self.ids is None else self.ids
        return frozen_table(np.asarray(known, np.int64), "token")

    def positions(self, word: str) -> list[int]:
        """The positions of a word, in any case: of the tokens that are it, or of the last token of each occurrence of a
        word of several tokens.

        Args:
            word: the text of a token, or a word of the text.

        Returns:
            The positions, in order.

        Examples:
            >>> from regard.lens import Axis
            >>> axis = Axis.of(["It", " is", " it", " trans", "former"])
            >>> axis.positions("it"), axis.positions("transformer")
            ([0, 2], [4])
        """
        word, characters = word.strip().casefold(), dict(self.unknown)
        spelled = [visible(characters.get(i, part)).casefold() for i, part in enumerate(self.tokens)]
        if found := [i for i, part in enumerate(spelled) if part == word]:
            return found
        ends = np.cumsum([len(part) for part in self.tokens])
        whole = re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", "".join(self.tokens), re.IGNORECASE)
        return [int(np.searchsorted(ends, each.end())) for each in whole] if word else []

    def number_of(self, word: str) -> int:
        """The number of a token in `token`, by its text with or without a space before it; -1 if no position has it."""
        known = dict(zip(self.tokens, self.token.array.tolist(), strict=True))
        return known.get(word, known.get(f" {word}", -1))

    def __len__(self) -> int:
        return len(self.tokens)


def named(axis: Axis, position: int, edge: str = "") -> str:
    """The token at a position as visible text. If the vocabulary lacks it: its characters, and what the model saw.

    >>> from regard.lens import Axis
    >>> named(Axis("text", ("a", " [UNK]"), (False, False), unknown=((1, "𓀀"),)), 1)
    '𓀀 ([UNK])'
    """
    characters = dict(axis.unknown).get(position)
    shown = visible(axis.tokens[position], edge)
    return shown if characters is None else f"{visible(characters)} ({visible(axis.tokens[position])})"
