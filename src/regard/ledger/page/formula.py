"""Formula: a number as a function of tokens n and sequences B, found from a few samples and confirmed by others.

(e·n² + a·n + b)·B + f·n² + c·n + d, with other coefficients beyond each window of the model: a cache that keeps w − 1
keys grows up to there and no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

__all__ = ["Plan", "Region", "fitted", "plain", "planned", "value"]

Size = tuple[int, int]  # tokens, sequences
Piece = tuple[int, tuple[Fraction, ...]]  # the tokens from which it holds, coefficients of B·n², B·n, B, n², n, 1
STEP = 64
FAR = 1021  # where a formula of any length is confirmed: no multiple of a chunk


@dataclass(frozen=True)
class Region:
    """Tokens between two windows. tokens: three numbers from which a formula is found · confirm: a fourth."""

    tokens: tuple[int, int, int]
    confirm: int

    @property
    def sizes(self) -> list[Size]:
        return [*((each, batch) for batch in (1, 2) for each in self.tokens), (self.confirm, 3)]


@dataclass(frozen=True)
class Plan:
    """Which sizes are run. least: the fewest tokens for which formulas hold · borders: tokens around each window, which
    say where one formula ends and the next one begins.
    """

    regions: tuple[Region, ...]
    borders: tuple[tuple[int, ...], ...]
    least: int

    @property
    def sizes(self) -> list[Size]:
        """All of them."""
        inner = [(tokens, 1) for border in self.borders for tokens in border]
        return list(dict.fromkeys([*(size for region in self.regions for size in region.sizes), *inner]))


def planned(windows: Sequence[int], most: int | None) -> Plan:
    """The sizes for a model with these windows. most: tokens that it can be given, None without limit.

    >>> planned([], None).sizes
    [(64, 1), (128, 1), (192, 1), (64, 2), (128, 2), (192, 2), (1021, 3)]
    """
    regions: list[Region] = []
    borders: list[tuple[int, ...]] = []
    begin = least = 1
    for window in sorted({each for each in windows if each > 1 and (most is None or each + 8 < most)}):
        if window - 2 - begin < 4:  # too narrow: formulas begin after it
            begin = least = window + 2
            regions, borders = [], []
            continue
        regions.append(_between(begin, window - 2))
        borders.append(tuple(range(window - 1, window + 2)))
        begin = window + 2
    end = max(begin + 4, begin + FAR if most is None else min(begin + FAR, most))
    regions.append(Region((begin + STEP - 1, begin + 2 * STEP - 1, begin + 3 * STEP - 1), end - 1)
                   if end - begin > 4 * STEP else _between(begin, end))  # fmt: skip
    return Plan(tuple(regions), tuple(borders), least)


def _between(low: int, high: int) -> Region:
    """Four numbers spread over low … high."""
    width = high - low
    return Region((low + width // 5, low + 2 * width // 5, low + 3 * width // 5), low + width - width // 11)


def fitted(samples: Mapping[Size, int], plan: Plan) -> list[Piece] | None:
    """The pieces of the formula of a number; None if a sample is missing or is not what the formula says."""
    pieces: list[Piece] = []
    for number, region in enumerate(plan.regions):
        found = _solved(samples, region)
        if found is None:
            return None
        if not pieces:
            pieces.append((plan.least, found))
        elif found != pieces[-1][1]:
            border = plan.borders[number - 1]
            begins = range(border[0], border[-1] + 2)
            made = ([*pieces, (begin, found)] for begin in begins)
            fits = (each for each in made if all(value(each, n, 1) == samples.get((n, 1)) for n in border))
            longer = next(fits, None)
            if longer is None:
                return None
            pieces = longer
    sizes = plan.sizes
    return pieces if all(value(pieces, *size) == samples.get(size) for size in sizes) else None


def _solved(samples: Mapping[Size, int], region: Region) -> tuple[Fraction, ...] | None:
    """The coefficients from six samples: a parabola for one sequence, one for two, and their difference."""
    values = [samples.get(size) for size in region.sizes[:6]]
    if any(each is None for each in values):
        return None
    numbers = [Fraction(each) for each in values if each is not None]
    single, double = _parabola(region.tokens, numbers[:3]), _parabola(region.tokens, numbers[3:])
    each = [two - one for one, two in zip(single, double, strict=True)]
    return (*each, *(one - more for one, more in zip(single, each, strict=True)))


def _parabola(places: Sequence[int], values: Sequence[Fraction]) -> tuple[Fraction, Fraction, Fraction]:
    """The coefficients of n², n and 1 through three points."""
    x, y, z = map(Fraction, places)
    slope = (values[1] - values[0]) / (y - x)
    square = ((values[2] - values[1]) / (z - y) - slope) / (z - x)
    linear = slope - square * (x + y)
    return square, linear, values[0] - square * x * x - linear * x


def value(pieces: Sequence[Piece], tokens: int, batch: int) -> Fraction:
    """The number for so many tokens and sequences."""
    coefficients = [each for begin, each in pieces if begin <= tokens or begin == pieces[0][0]][-1]
    each, shared = (a * tokens * tokens + b * tokens + c for a, b, c in (coefficients[:3], coefficients[3:]))
    return batch * each + shared


def plain(pieces: Sequence[Piece] | None) -> Any:
    """For JSON: null, one whole number, or lists [from, e, a, b, f, c, d, denominator]; numbers beyond 2⁵³ as text."""
    if pieces is None:
        return None
    if len(pieces) == 1 and not any(pieces[0][1][:5]) and pieces[0][1][5].denominator == 1:
        return _whole(int(pieces[0][1][5]))
    rows = []
    for begin, coefficients in pieces:
        shared = lcm(*(each.denominator for each in coefficients))
        rows.append([begin, *(_whole(int(each * shared)) for each in coefficients), shared])
    return rows


def _whole(number: int) -> int | str:
    return number if abs(number) < 1 << 53 else str(number)
