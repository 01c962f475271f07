"""Figures for papers and terminals show the weights."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot

import regard as rg
from regard.lens import Axis, Call, Run
from regard.lens.heatmap import LMS, RGB, matrix_figure, ramp
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
from tests.support.engines import normal
from tests.support.refusals import reasons_of

WORDS = ["[CLS]", "a", "$x$", "</script>", "\u202eb", "lo ng", "🦊", "z"]


def weights(n=8, heads=2, mask=None):
    return rg.attention_weights(*normal(2, heads, n, 16, dtype=float), mask=mask)


def run_of(given, mask=None, words=None):
    H, Q, K = given.shape
    rule = None if mask is None else rg.dense(mask[None, None], query_start=0)
    call = Call("layer", 0, "text", "text", np.zeros((H, Q)), given=given, mask=rule)
    return Run("toy", "", {"text": Axis.of(words or K)}, (call,))


def image_of(figure, place=0):
    return np.asarray(figure.axes[place].images[0].get_array())


@pytest.mark.parametrize("scale", ["log", "near", "linear", None])
def test_colours_are_those_of_the_legend(scale):
    """Each cell has the colour that the ramp gives its weight, on a domain that does not move with the data."""
    p = weights()
    place = p if scale == "linear" else 1 + np.log10(p) / (6 if scale == "log" else 3)  # of itself, from 0.1 %
    expected = ramp("light")[np.rint(255 * np.clip(place, 0, 1)).astype(int)] / 255
    figure = rg.heatmap(p, scale=scale)
    np.testing.assert_allclose([image_of(figure, head)[..., :3] for head in range(2)], expected)


def test_what_is_no_plain_weight_looks_different():
    """Masked, zero, not a number, out of range and forbidden weight have five looks, and each is named in the
    legend.
    """
    p, places = weights(heads=1, mask=rg.causal()), ((3, 4, 5, 2), (1, 2, 3, 6))
    p[0][places] = 0, np.nan, 1.5, 0.2
    figure = rg.heatmap(p, mask=np.tri(8, dtype=bool))
    shown = image_of(figure)
    assert len(np.unique(shown[places], axis=0)) == 4 and shown[0, 7, 3] == 0 and (shown[places][:, 3] == 1).all()
    assert named(figure) == ["masked", "exactly 0", "not a number", "out of range", "weight where the mask forbids it"]


def named(figure):
    """What the legend names."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_zero_is_on_no_ramp():
    """Exactly 0 differs by more than an eye can miss from every colour that a weight may have, light and dark, and is
    the page's.
    """
    sheet = Path(rg.lens.__file__).with_name("viewer").joinpath("web", "page.css").read_text()
    zeros = [np.array([*bytes.fromhex(found)]) for found in re.findall(r"--zero: #(\w{6})", sheet)]
    for theme, zero in zip(("light", "dark"), zeros, strict=True):
        assert np.abs(np.vstack([ramp(theme), ramp(f"diverging-{theme}")]) - zero).sum(-1).min() > 36
    np.testing.assert_allclose(image_of(rg.heatmap(np.eye(8)[None]))[3, 1, :3], zeros[0] / 255)


def test_a_pooled_picture_adds_up(monkeypatch):
    """Cells of a pooled picture are means over rows of sums over keys, and the title's text says how large they are,
    and which rows they are made of where computing all would take long. (Samples: test_tiles, as regions.)
    """
    p = weights(n=90)
    part = run_of(p).calls[0], 1, range(20, 80), range(7, 90), 6
    cut, size = 7 + np.arange(6) * 83 // 6, "cells of 10 × 13.83 pairs: mean of rows, sum of keys"
    found = matrix_figure(*part)
    shares = np.add.reduceat(p[1, 20:80, :90], cut, 1).reshape(6, 10, 6).mean(1)
    np.testing.assert_allclose(found.share, shares, rtol=1e-6)
    monkeypatch.setattr("regard.lens.runs.tiles.GIVEN", 60 * 83 // 2)
    assert (found.exact, matrix_figure(*part).exact) == (size, f"{size}, sampled 1 row of 2")
    assert "pairs" in rg.heatmap(p, cells=7).axes[0].get_xlabel()


def test_a_part_of_a_run_names_its_tokens(tmp_path):
    """Rows and keys that are cut out keep their words, hostile ones are only text, and the file is made; `ax` is used
    where there is one, and only it.
    """
    _, (place, free) = pyplot.subplots(1, 2)
    run = run_of(weights(), words=WORDS)
    figure = rg.heatmap(run, "layer", 1, rows=slice(2, 5), keys=slice(0, 4), title="a $ b", ax=place)
    assert figure is place.figure and len(place.images) == 1 and not free.images
    for labels, words in (
        (place.get_xticklabels(), ["[CLS]", "a", r"\$x\$", "</script>"]),
        (place.get_yticklabels(), [r"\$x\$", "</script>", "⟨U+202E⟩b"]),
    ):
        assert [label.get_text() for label in labels] == words
    figure.savefig(tmp_path / "picture.pdf")
    assert (tmp_path / "picture.pdf").read_bytes().startswith(b"%PDF")


EVERY_REASON = [
    "no such scale",
    "cells is not a number of cells",
    "call= without a run",
    "no such head",
    "the number of tokens is not the number of keys",
    "rows outside the matrix",
]
NO_CALL = ["call= is not the number or the name of a call"]
WRONG = {"heads": [2], "scale": "cubic", "cells": 0, "tokens": ["a"], "rows": slice(9, 12)}


@pytest.mark.parametrize(
    ("given", "named", "whats"),
    [
        ((weights(), 3), WRONG, EVERY_REASON),
        ((np.ones(4),), {}, ["not weights"]),
        ((weights(), weights()), {}, NO_CALL),
        ((run_of(weights()), None), {}, NO_CALL),
        ((run_of(weights()), True), {}, NO_CALL),
        ((weights(),), {"mask": np.ones((7, 7), bool)}, ["a mask that does not fit"]),
        ((run_of(weights()),), {"mask": np.ones((8, 8), bool)}, ["mask= with a run or call, which has its own mask"]),
        ((weights(),), {"ax": object()}, ["several heads on one ax"]),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_every_reason(given, named, whats):
    """Every problem is listed, with what was given and how to fix it."""
    assert [reason.what for reason in reasons_of(rg.heatmap, *given, **named)] == whats


# What a page says weights and words with: codes within their error, colours evenly spaced, tokens with nothing hidden

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


def test_codes_keep_three_digits():
    """The page prints the digits of the weights that were computed, not those of codes beside them."""
    weights = 10 ** np.random.default_rng(0).uniform(-6, 0, 100_000)
    found = decode(*encode(weights))
    assert [f"{each:.2e}" for each in found] == [f"{each:.2e}" for each in weights]


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
