"""What a page says weights and words with: codes within their error, colours evenly spaced, tokens with nothing hidden
in them.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.lens.drawing.ramp import LMS, RGB, ramp
from regard.lens.runs.codes import (
    COARSE_ERROR,
    FINE_ERROR,
    FIRST,
    LEAK,
    MASKED,
    NAN,
    OUT,
    TINY,
    ZERO,
    decode,
    encode,
    percent,
)
from regard.lens.runs.labels import visible


@given(st.lists(st.floats(1e-6, 1), min_size=1))
def test_codes_stay_within_their_error(weights):
    """From 10⁻⁶ to 1 a code stands for its weight to within the stated relative error, with and without the second
    byte.
    """
    weights = np.array(weights)
    coarse, fine = encode(weights)
    assert (abs(decode(coarse) / weights - 1) <= COARSE_ERROR * 1.0001).all()
    assert (abs(decode(coarse, fine) / weights - 1) <= FINE_ERROR * 1.0001).all()


@given(st.lists(st.floats(0, 1), min_size=2))
def test_codes_keep_the_order(weights):
    """A larger weight never has the smaller code."""
    coarse, fine = encode(np.sort(weights))
    order = np.where(coarse == TINY, FIRST - 1, coarse.astype(int)) * 256 + np.where(coarse >= FIRST, fine, 0)
    assert (np.diff(order) >= 0).all()


def test_codes_tell_the_kinds_of_nothing_apart():
    """Masked, zero, tiny, not a number, out of range, and weight behind the mask have a code each; one is exactly
    one.
    """
    weights = np.array([0.0, 0.0, 1e-9, np.nan, -0.5, 1.5, np.inf, 0.3, 1.0, 1 + 1e-7])
    coarse, fine = encode(weights, np.array([False, *[True] * 6, False, True, True]))
    assert coarse.tolist() == [MASKED, ZERO, TINY, NAN, OUT, OUT, OUT, LEAK, 255, 255]
    np.testing.assert_array_equal(decode(coarse)[:7], [0, 0, 0, np.nan, np.nan, np.nan, np.nan])
    assert decode(coarse, fine)[8:].tolist() == [1, 1]
    assert abs(decode(coarse, fine)[7] / 0.3 - 1) <= COARSE_ERROR  # what leaked can be read too
    assert (percent(COARSE_ERROR), percent(FINE_ERROR)) == ("3 %", "0.02 %")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_evenly_spaced(theme):
    """Equal steps along the ramp look equally large, and lightness goes one way only."""
    lightness, steps = along(ramp(theme))
    assert steps.max() / steps.min() < 1.15
    assert (np.diff(lightness) < 0).all() if theme == "light" else (np.diff(lightness) > 0).all()


@pytest.mark.parametrize("theme", ["diverging-light", "diverging-dark"])
def test_diverging_colours_turn_in_the_middle(theme):
    """Both halves lead away from the neutral colour in the middle, which is the one nearest to the paper."""
    lightness, steps = along(ramp(theme))
    away = lightness if theme == "diverging-light" else -lightness
    assert abs(away.argmax() - len(away) // 2) <= 1
    for half in (steps[:8], steps[9:]):
        assert half.max() / half.min() < 1.15


def along(colours) -> tuple[np.ndarray, np.ndarray]:
    """Lightness of every fifth colour, and how different each fifteenth looks from the last, in OKLab."""
    srgb = colours / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(linear @ np.linalg.inv(RGB).T) @ np.linalg.inv(LMS).T
    return lab[::5, 0], np.linalg.norm(np.diff(lab[::15], axis=0), axis=1)


def test_nothing_in_a_token_stays_hidden():
    """Blanks, controls and direction marks are written as signs; ordinary letters of any script stay as they are."""
    assert visible("\u202egnp.exe") == "⟨U+202E⟩gnp.exe"
    assert visible("a\u200bb\x1b[31m") == "a⟨U+200B⟩b␛[31m"
    assert visible("\u2028") == "⟨U+2028⟩"
    assert visible(" word") == "word"
    assert visible("  ") == "␣␣"
    assert visible("\ud800") == "⟨U+D800⟩"
    assert visible("שלום 🦊 日本") == "שלום␣🦊␣日本"


@pytest.mark.parametrize(
    "letter",
    [*map(chr, (0xFE00, 0xFE0F, 0xE0100, 0xE01EF, 0x34F, 0x3164, 0x115F, 0x1160, 0xFFA0, 0x2800, 0x17B4, 0x180B))],
)
def test_letters_without_a_look_are_named(letter):
    """Variation selectors, joiners and fillers, which leave no ink, are written as their numbers."""
    assert visible(f"a{letter}b") == f"a⟨U+{ord(letter):04X}⟩b"


def test_marks_pile_up_only_so_high():
    """As many marks on a letter as languages have stand as they are; those that would cover the lines above are
    named.
    """
    assert visible("שִׁ́ ệ́") == "שִׁ́␣ệ́"
    assert visible("e" + "́" * 6 + "x́") == "e" + "́" * 4 + "⟨U+0301⟩⟨U+0301⟩x́"
