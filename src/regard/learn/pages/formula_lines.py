"""The lines of a block of formulas: columns below each other, aligned at the equals sign."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

RELATIONS = "=→≈"
RELATION = re.compile(rf"(?<!\S)[{RELATIONS}](?!\S)")
JOINS = f"{RELATIONS}+−·/@"  # wide spaces beside these are there for alignment
GAP = re.compile(r" {2,}")


@dataclass(frozen=True)
class Cell:
    """A formula within a line, or a side of it.

    line: its number · side: how it is aligned · span: how many columns it takes · indented: whether it is below
    what follows an equals sign
    """

    text: str
    line: int
    side: str = "only"
    span: int = 1
    indented: bool = False


@dataclass(frozen=True)
class Piece:
    """What is between wide spaces. at: its column in the plain text"""

    text: str
    at: int
    line: int

    @property
    def goes_on(self) -> bool:
        """Whether it continues the formula of the line above."""
        return self.text[0] in JOINS and self.text[1:2] == " "

    @property
    def sides(self) -> tuple[str, str] | None:
        """Left of the first relation outside brackets, and the rest."""
        for match in RELATION.finditer(self.text):
            if _balanced(self.text[: match.start()]):
                return self.text[: match.start()].strip(), self.text[match.start() :]
        return None


def grids(text: str, first: int) -> Iterator[tuple[str, list[list[Cell]]]]:
    """Groups of lines, which empty lines separate, each as it was written, and as rows of equally many cells.

    first: the number of the first line
    """
    numbered = list(enumerate(text.rstrip().split("\n"), first))
    for filled, group in groupby(numbered, key=lambda pair: bool(pair[1].strip())):
        lines = list(group)
        if filled:
            said = textwrap.dedent("\n".join(line for _, line in lines))
            yield said, _grid([_pieces(line, number) for number, line in lines])


def _pieces(line: str, number: int) -> list[Piece]:
    """The parts of a line between wide spaces. A sign between wide spaces joins both sides."""
    found: list[Piece] = []
    at = len(line) - len(line.lstrip())
    gaps = [gap.span() for gap in GAP.finditer(line) if gap.start() >= at and _balanced(line[: gap.start()])]
    ends = [*gaps, (len(line), len(line))]
    for end, following in ends:
        text = line[at:end].strip()
        if text:
            before = found[-1] if found else None
            if before and ((text[0] in JOINS and text[1:2] in ("", " ")) or before.text[-1] in JOINS):
                found[-1] = Piece(f"{before.text} {text}", before.at, number)
            else:
                found.append(Piece(text, at, number))
        at = following
    return found


def _balanced(text: str) -> bool:
    """Whether no bracket is open at its end."""
    return sum(map(text.count, "([{")) == sum(map(text.count, ")]}"))


def _grid(lines: list[list[Piece]]) -> list[list[Cell]]:
    """The lines as rows of equally many cells."""
    starts = sorted({piece.at for line in lines for at, piece in enumerate(line) if at or not _indented(piece, lines)})
    columns = [max(start for start in starts if start <= max(piece.at, starts[0])) for line in lines for piece in line]
    placed = list(zip(columns, (piece for line in lines for piece in line)))
    split = {
        start for start in starts if _split([piece for column, piece in placed if column == start], start == starts[0])
    }
    return [[cell for start in starts for cell in _cells(line, start, start in split, placed)] for line in lines]


def _indented(piece: Piece, lines: list[list[Piece]]) -> bool:
    """Whether the first piece of its line continues a column, or is in a later one."""
    return piece.goes_on or piece.at > min(line[0].at for line in lines)


def _split(pieces: list[Piece], leftmost: bool) -> bool:
    """Whether a column is aligned at its relations."""
    count = sum(piece.sides is not None for piece in pieces)
    return len(pieces) > 1 and count >= (1 if leftmost else 2)


def _cells(line: list[Piece], start: int, split: bool, placed: list[tuple[int, Piece]]) -> list[Cell]:
    piece = next((each for column, each in placed if column == start and each in line), None)
    number = line[0].line
    if not split:
        return [Cell(piece.text if piece else "", number, "only")]
    if piece is None:
        return [Cell("", number, "left"), Cell("", number, "right")]
    if piece.sides is not None:
        left, right = piece.sides
        return [Cell(left, number, "left"), Cell(right, number, "right")]
    if piece.goes_on or piece.at > start:
        return [Cell("", number, "left"), Cell(piece.text, number, "right", indented=piece.text[0] not in RELATIONS)]
    return [Cell(piece.text, number, "only", 2)]
