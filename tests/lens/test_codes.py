"""What a page says weights and words with: codes within their error, colours evenly spaced, tokens with nothing hidden
in them.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.lens.heatmap import LMS, RGB, ramp
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
)
from regard.lens.runs.labels import visible

# Variation selectors, joiners and fillers.
WITHOUT_A_LOOK = (0xFE00, 0xFE0F, 0xE0100, 0xE01EF, 0x34F, 0x3164, 0x115F, 0x1160, 0xFFA0, 0x2800, 0x17B4, 0x180B)


@given(st.lists(st.floats(0, 1) | st.floats(1e-6, 1), min_size=2))
def test_codes_keep_the_order_within_their_error(weights):
    """A larger weight never has the smaller code; from 10⁻⁶ to 1 a code stands for its weight to within the stated
    relative error, with and without the second byte.
    """
    weights = np.sort(weights)
    coarse, fine = encode(weights)
    order = np.where(coarse == TINY, FIRST - 1, coarse.astype(int)) * 256 + np.where(coarse >= FIRST, fine, 0)
    assert (np.diff(order) >= 0).all()
    known = weights >= 1e-6
    for found, error in ((decode(coarse), COARSE_ERROR), (decode(coarse, fine), FINE_ERROR)):
        np.testing.assert_allclose(found[known], weights[known], rtol=error * 1.0001)


def test_codes_tell_the_kinds_of_nothing_apart():
    """Masked, zero, tiny, not a number, out of range, and weight behind the mask have a code each; one is exactly
    one, and what leaked can be read too.
    """
    weights = np.array([0.0, 0.0, 1e-9, np.nan, -0.5, 1.5, np.inf, 0.3, 1.0, 1 + 1e-7])
    coarse, fine = encode(weights, ~np.isin(np.arange(10), (0, 7)))
    assert coarse.tolist() == [MASKED, ZERO, TINY, NAN, OUT, OUT, OUT, LEAK, 255, 255]
    np.testing.assert_array_equal(decode(coarse)[:7], [0, 0, 0, *[np.nan] * 4])
    assert decode(coarse, fine)[7:].tolist() == [pytest.approx(0.3, rel=COARSE_ERROR), 1, 1]


def linear(colors):
    """Colors of sRGB, from 0 to 255, in amounts of light."""
    return np.where(colors <= 10.3, colors / 3294.6, ((colors / 255 + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("theme", ["light", "dark", "diverging-light", "diverging-dark"])
def test_colours_are_evenly_spaced(theme):
    """Equal steps along the ramp look equally large, and lightness goes one way only; diverging colours turn in the
    middle, at the one nearest to the paper.
    """
    lab = np.cbrt(linear(ramp(theme)) @ np.linalg.inv(RGB).T) @ np.linalg.inv(LMS).T  # OKLab
    lightness = lab[::5, 0] * (1 if theme.endswith("light") else -1)
    steps = [np.linalg.norm(np.diff(lab[::15], axis=0), axis=1)]
    if theme.startswith("diverging"):
        assert abs(lightness.argmax() - len(lightness) // 2) <= 1
        steps = steps[0][:8], steps[0][9:]
    else:
        assert (np.diff(lightness) < 0).all()
    assert all(part.max() / part.min() < 1.15 for part in steps)


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("a\u200bb\x1b[31m", "a⟨U+200B⟩b␛[31m"),
        ("\u2028", "⟨U+2028⟩"),
        (" word", "word"),
        ("  ", "␣␣"),
        ("\ud800", "⟨U+D800⟩"),
        ("\ufffd", "⟨U+FFFD⟩"),  # never a sign that stands for nothing
        ("שלום 🦊 日本", "שלום␣🦊␣日本"),
        ("שִׁ́ ệ́", "שִׁ́␣ệ́"),
        ("e" + "́" * 6 + "x́", "e" + "́" * 4 + "⟨U+0301⟩⟨U+0301⟩x́"),
        *((f"a{chr(code)}b", f"a⟨U+{code:04X}⟩b") for code in WITHOUT_A_LOOK),
    ],
)
def test_nothing_in_a_token_stays_hidden(token, shown):
    """Blanks, controls, direction marks, selectors, joiners and fillers, which leave no ink, are written as signs or
    numbers; ordinary letters of any script stay as they are, with as many marks as languages have.
    """
    assert visible(token) == shown
