"""The lens before the page: statistics against brute force, codes within their error, colours evenly spaced, the choice."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
import regard.lens.run as run_module
from regard.lens import Layer, Run, statistics, survey
from regard.lens.choice import choose
from regard.lens.codes import COARSE_ERROR, FINE_ERROR, Coder, decode, encode, percent
from regard.lens.labels import visible
from regard.lens.ramp import LMS, RGB, ramp
from regard.lens.stats import of_layer


def weights_of(seed: int, heads: int, n: int, mask) -> tuple[np.ndarray, np.ndarray]:
    """Weights of random queries and keys, and where they may look."""
    q, k = 2 * np.random.default_rng(seed).standard_normal((2, heads, n, 8))
    allowed = np.broadcast_to(rg.attention_weights(q, 0 * k, mask=mask) > 0, (heads, n, n))
    return rg.attention_weights(q, k, mask=mask), allowed


def brute(weights, allowed, special) -> dict[str, list[float]]:
    """Every statistic by its definition, in plain Python."""
    found = {name: [] for name in
             ("entropy", "spread", "special", "distance", "itself", "previous", "maximum", "distant", "reach")}  # fmt: skip
    n = len(special)
    for p, seen in zip(weights.tolist(), allowed.tolist(), strict=True):
        rows = {name: [] for name in found}
        for i in range(n):
            if not any(seen[i]):
                continue
            entropy = -math.fsum(x * math.log(x) for x in p[i] if x > 0)
            visible_keys = sum(seen[i])
            far = [p[i][j] for j in range(n) if abs(i - j) > 1 and not special[j]]
            rows["entropy"].append(entropy)
            rows["spread"].append(entropy / math.log(visible_keys) if visible_keys > 1 else 0)
            rows["special"].append(math.fsum(p[i][j] for j in range(n) if special[j]))
            rows["distance"].append(math.fsum(p[i][j] * abs(i - j) for j in range(n)))
            rows["itself"].append(p[i][i])
            rows["previous"].append(p[i][i - 1] if i else 0)
            rows["maximum"].append(max(p[i]))
            rows["distant"].append(math.fsum(far))
            rows["reach"].append(max(far, default=0) if not special[i] else 0)
        for name, values in rows.items():
            found[name].append(math.fsum(values) / len(values))
    return found


MASKS = {"all": None, "causal": rg.causal(), "later rows only": (rg.query >= 4) & (rg.key != 2), "window": rg.window(3)}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("cells", [1, 100, 1 << 22])
def test_statistics_equal_their_definitions(mask, cells, monkeypatch):
    """Every statistic equals a plain loop over its definition, however the rows are cut into blocks, empty rows left out."""
    monkeypatch.setattr(run_module, "CELLS", cells)
    special = [True, *[False] * 8, True]
    weights, allowed = weights_of(1, 3, len(special), mask)
    found = of_layer(Layer.of(weights, allowed), special)
    for name, expected in brute(weights, allowed, special).items():
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-12, atol=1e-13, err_msg=name)


def test_a_uniform_row_has_all_the_entropy_there_is():
    """Equal weights over n keys: entropy ln n, spread 1; a single visible key: both 0."""
    found = of_layer(Layer.of(np.stack([np.full((5, 5), 0.2), np.eye(5)])), [False] * 5)
    np.testing.assert_allclose(found.entropy, [math.log(5), 0], atol=1e-12)
    np.testing.assert_allclose(found.spread, [1, 0], atol=1e-12)
    assert of_layer(Layer.of(np.ones((1, 1, 1))), [False]).spread.tolist() == [0]


def test_statistics_show_what_is_not_a_number():
    """A NaN among the weights is seen in the statistics; a head in which no row sees anything has none."""
    weights = np.full((2, 3, 3), 1 / 3)
    weights[0, 1, 1] = np.nan
    allowed = np.ones((2, 3, 3), bool)
    allowed[1] = False
    found = of_layer(Layer.of(weights, allowed), [False] * 3)
    assert np.isnan(found.entropy).all()
    assert np.isnan(found.itself).all()


def test_a_survey_reads_each_weight_once():
    """Statistics and codes come from one pass: every row of every layer is computed exactly once."""
    asked = []
    weights, _ = weights_of(0, 2, 6, None)
    layer = Layer("counted", 2, lambda rows: asked.extend(range(rows.start, rows.stop)) or weights[:, rows])
    run = Run("toy", "text", tuple("abcdef"), (False,) * 6, (layer,))
    (found,) = survey(run)
    assert asked == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(found.figures.entropy, statistics(run)[0].entropy)


def test_a_page_too_large_is_refused():
    """More weights than a page should hold are refused before any is computed, with the length that would do."""
    layer = Layer("never read", 1000, lambda rows: pytest.fail("computed"))
    with pytest.raises(rg.Refused, match="at most 316 tokens"):
        survey(Run("toy", "text", ("a",) * 400, (False,) * 400, (layer,)))


def test_a_run_without_tokens_is_refused():
    """A run needs a token, a layer, and a flag for every token."""
    with pytest.raises(rg.Refused, match="nothing to look at"):
        Run("toy", "", (), (), (Layer.of(np.ones((1, 1, 1))),))
    with pytest.raises(rg.Refused, match="flags"):
        Run("toy", "a", ("a",), (), (Layer.of(np.ones((1, 1, 1))),))
    with pytest.raises(rg.Refused, match="wrong shape"):
        Layer.of(np.ones((2, 2)))


@given(st.lists(st.floats(1e-6, 1), min_size=1))
def test_codes_stay_within_their_error(weights):
    """From 10⁻⁶ to 1 a code stands for its weight to within the stated relative error, with and without the second byte."""
    weights = np.array(weights)
    coarse, fine = encode(weights, np.ones(len(weights), bool))
    assert (abs(decode(coarse) / weights - 1) <= COARSE_ERROR).all()
    assert (abs(decode(coarse, fine) / weights - 1) <= FINE_ERROR * 1.0001).all()


@given(st.lists(st.floats(0, 1), min_size=2))
def test_codes_keep_the_order(weights):
    """A larger weight never has the smaller code."""
    coarse, fine = encode(np.sort(weights), np.ones(len(weights), bool))
    both = coarse.astype(int) * 256 + np.where(coarse > 2, fine, 0)
    assert (np.diff(both) >= 0).all()


def test_codes_tell_the_kinds_of_nothing_apart():
    """Masked, zero, not a number and one each have a code of their own, and one is exactly one."""
    coarse, fine = encode(np.array([0.3, 0.0, 1e-9, np.nan, 1.0, 1 + 1e-7]), np.array([False] + [True] * 5))
    assert coarse.tolist() == [0, 1, 1, 2, 255, 255]
    np.testing.assert_array_equal(decode(coarse, fine), [0, 0, 0, np.nan, 1, 1])
    assert (percent(COARSE_ERROR), percent(FINE_ERROR)) == ("3 %", "0.02 %")


@pytest.mark.parametrize("n", [1, 2, 43, 44, 45, 100])
def test_rows_of_a_picture_sum_to_one(n):
    """A picture keeps the weight: its rows sum to 1, and it is the matrix itself where that is small enough."""
    weights, allowed = weights_of(n, 2, n, rg.causal())
    coder = Coder(2, n, fine=False)
    half = n // 2
    for rows in (slice(0, half), slice(half, n)):
        coder.add(rows, weights[:, rows], allowed[:, rows])
    pictures = coder.mass / np.bincount(coder.bins)[:, None]
    np.testing.assert_allclose(pictures.sum(-1), 1)
    assert (coder.result().pictures == 0).any() == (n > 1)
    if n <= 44:
        np.testing.assert_allclose(pictures, weights, atol=1e-15)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_evenly_spaced(theme):
    """Equal steps along the ramp look equally large, and lightness goes one way only."""
    srgb = ramp(theme) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(linear @ np.linalg.inv(RGB).T) @ np.linalg.inv(LMS).T
    steps = np.linalg.norm(np.diff(lab[::15], axis=0), axis=1)
    assert steps.max() / steps.min() < 1.15
    lightness = np.diff(lab[::5, 0])
    assert (lightness < 0).all() if theme == "light" else (lightness > 0).all()


def test_nothing_in_a_token_stays_hidden():
    """Blanks, controls and direction marks are written as signs; ordinary letters of any script stay as they are."""
    assert visible("\u202egnp.exe") == "⟨U+202E⟩gnp.exe"
    assert visible("a\u200bb\x1b[31m") == "a⟨U+200B⟩b␛[31m"
    assert visible("\u2028") == "⟨U+2028⟩"
    assert visible(" word") == "word"
    assert visible("  ") == "␣␣"
    assert visible("\ud800") == "⟨U+D800⟩"
    assert visible("שלום 🦊 日本") == "שלום␣🦊␣日本"


def toy(rows_by_head: dict[int, dict[int, int]], n: int = 8) -> Run:
    """A layer of two heads that look at themselves, but for the rows that are told to look elsewhere."""
    weights = np.stack([np.eye(n)] * 2)
    for head, rows in rows_by_head.items():
        for row, key in rows.items():
            weights[head, row] = 0.1 * np.eye(n)[row] + 0.9 * np.eye(n)[key]
    special = (True, *[False] * (n - 2), True)
    return Run(
        "toy", "text", ("[CLS]", *["the", "cat", "saw", "the", "black", "dog"], "[SEP]")[:n], special, (Layer.of(weights),)
    )


def test_the_choice_is_the_firmest_distant_look():
    """The head that looks most at distant ordinary words is chosen, and in it the row that does; special tokens do not count."""
    run = toy({0: {2: 7, 3: 0}, 1: {5: 2, 7: 3}})
    found = choose(run, survey(run))
    assert (found.layer, found.head, found.token) == (0, 1, 5)
    assert "11%" in found.why  # 0.9 in one of 8 rows


def test_what_was_asked_for_is_chosen():
    """A layer, head and token that are named are kept; a token can be a position or a word."""
    run = toy({0: {5: 1}, 1: {6: 2}})
    surveys = survey(run)
    assert choose(run, surveys, token="5").head == 0
    assert choose(run, surveys, token="dog").head == 1
    assert choose(run, surveys, head=0, token="DOG").token == 6
    assert choose(run, surveys, layer=0, head=0).token == 5
    for asked in ({"layer": 1}, {"head": 2}, {"head": -1}, {"token": "horse"}, {"token": "8"}):
        with pytest.raises(rg.Refused, match="no such"):
            choose(run, surveys, **asked)


def test_a_text_without_distance_still_has_a_choice():
    """Where no ordinary token is two away from another, the first head and the first ordinary token are shown."""
    run = Run("toy", "hi", ("[CLS]", "hi", "[SEP]"), (True, False, True), (Layer.of(np.full((2, 3, 3), 1 / 3)),))
    found = choose(run, survey(run))
    assert (found.layer, found.head, found.token) == (0, 0, 1)
    assert found.why.startswith("the first of all heads")
