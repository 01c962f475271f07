"""Rules of recorded calls: for one batch entry, as short as they can be said, and always the same pairs and numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard import batch, head, key, query, table
from regard.language.expr import frozen_table
from regard.language.expr import score as the_score
from regard.lens.recording import one_entry as rules
from regard.lens.recording.inputs import png
from regard.lens.recording.keeper import unmeasured
from regard.lens.recording.passes import Growing
from tests.support.engines import at_every_pair


def value(rule, heads, Q, K, start=0, entry=0, score=0.0):
    """A rule for every pair, (heads, Q, K)."""
    return at_every_pair(rule, (entry + 1, heads, Q, K), start, score)[entry]


sizes = st.tuples(
    st.integers(1, 3), st.integers(1, 7), st.integers(1, 7), st.integers(-3, 5), st.integers(0, 2**32 - 1)
)


@settings(max_examples=150, deadline=None)
@given(sizes, st.sampled_from(["random", "causal", "window", "band", "padded", "all", "none"]))
def test_a_mask_is_said_exactly(drawn, kind):
    """Whatever the booleans are, the rule allows the same pairs."""
    H, Q, K, start, seed = drawn
    random = np.random.default_rng(seed)
    away = (start + np.arange(Q))[:, None] - np.arange(K)
    seen = {
        "random": random.random((H, Q, K)) < 0.5,
        "causal": away >= 0,
        "window": (away >= 0) & (away < 3),
        "band": abs(away) < 3,
        "padded": (away >= 0) & (random.random(K) < 0.6),
        "all": True,
        "none": False,
    }[kind]
    whole = np.broadcast_to(seen, (H, Q, K)).copy()
    rule = rules.mask_of(whole, start)
    np.testing.assert_array_equal(whole, True if rule is None else value(rule, H, Q, K, start))


ALL, CAUSAL, PADDING = np.ones((6, 6)), np.tri(6), np.arange(6) > 1


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (CAUSAL, "key <= query"),
        (CAUSAL - np.tri(6, k=-3), "(query - key < 3) & (key - query <= 0)"),
        (ALL * PADDING, "padding[key]"),
        (CAUSAL * PADDING, "(key <= query) & padding[key]"),
        (ALL, "None"),
        (0 * ALL, "False"),
        (np.eye(6)[::-1], "allowed[query, key]"),
    ],
)
def test_a_mask_is_said_shortly(seen, said):
    """Causality, windows and padding are found in a table of booleans."""
    assert str(rules.mask_of(seen[None] > 0, 0)) == said


@settings(max_examples=100, deadline=None)
@given(sizes, st.sampled_from(["random", "relative", "keys", "heads", "zero"]), st.booleans())
def test_a_bias_is_said_exactly(drawn, kind, causal):
    """Where a bias counts, the rule adds its numbers; the table has no more axes than they need."""
    H, Q, K, start, seed = drawn
    random = np.random.default_rng(seed)
    away = np.arange(K) - np.arange(Q)[:, None] + Q - 1
    bias = {
        "random": random.random((H, Q, K)),
        "relative": random.random((H, Q + K - 1))[:, away],
        "keys": random.random(K),
        "heads": random.random((H, 1, 1)),
        "zero": 0.0,
    }[kind]
    known = np.tri(Q, K, 0 if causal else K, dtype=bool)
    numbers = (known * np.broadcast_to(bias, (H, Q, K))).astype(np.float32)
    rule = rules.added(the_score, numbers, start, known if causal else None)
    np.testing.assert_array_equal(known * value(rule, H, Q, K, start, score=2.0), known * (2.0 + numbers.astype(float)))
    if kind == "relative" and Q > 1 and K > 1:
        assert all(len(each.shape) <= 2 for each in rule.tables)


@pytest.mark.parametrize("low", [-9e3, -1e4, -1e9, -1e30])
@pytest.mark.parametrize("largest", [5.0, 6e3])
def test_what_is_added_to_hide_keys_is_a_mask(low, largest):
    """Hidden or not, every weight is in float32 what it was; keys that may keep a weight, and rows of low keys alone,
    stay.
    """
    rng, shape = np.random.default_rng(0), (3, 7, 7)
    numbers = np.where(rng.random(shape) < 0.5, low, rng.normal(size=shape)).astype(np.float32)
    numbers[:, 2] = low
    bias = the_score + frozen_table(numbers, "bias")[head, query, key]
    scores = rng.uniform(-largest, largest, shape)
    mask, score = rules.hidden(None, bias, shape, 0, largest)

    def weights(mask, score):
        logits = scores if score is None else value(score, *shape, score=scores)
        logits = logits if mask is None else np.where(value(mask, *shape), logits, -np.inf)
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)

    assert np.array_equal(weights(mask, score), weights(None, bias))
    assert (mask is None) == (low > -1e4 or (low > -1e9 and largest > 5))


@pytest.mark.parametrize("entry", range(3))
def test_the_batch_is_put_in(entry):
    """Rules for one entry say what the rules for all say of it, without its number, over tables that nobody else can
    change.
    """
    random, shape = np.random.default_rng(0), (2, 4, 5)
    mask = (key <= query) & table(random.random((3, 5)) < 0.7)[batch, key]
    score = the_score + table(random.random((3, *shape)))[batch, head, query - 1, key]
    for rule, of_entry in ((mask, rules.entry_mask), (score, rules.entry_score)):
        mine = of_entry(rule, entry, shape, 1)
        assert not rules.reads(mine, "batch")
        np.testing.assert_allclose(value(mine, *shape, 1), value(rule, *shape, 1, entry), rtol=1e-6)
        assert all(each.frozen for each in mine.tables)


def test_windows_have_positions_of_their_own():
    """Windows one after the other: each has its own entry's rule, and between two nothing is allowed."""
    allowed = np.random.default_rng(0).random((4, 3, 3)) < 0.6
    mask, score = frozen_table(allowed)[batch, query, key], the_score + (query - key) * batch
    mask, score = (value(rule, 1, 6, 6)[0] for rule in rules.window_rules(mask, score, 2, (1, 3, 3), 0))
    away, between = np.arange(3)[:, None] - np.arange(3), np.kron(np.eye(2), np.ones((3, 3))) == 0
    assert not mask[between].any()
    for at, entry in ((slice(3), 2), (slice(3, 6), 3)):
        np.testing.assert_array_equal(mask[at, at], allowed[entry])
        np.testing.assert_array_equal(score[at, at], away * entry)


def recorded(rows, keys, start, **more):
    return unmeasured("layer", 0, q=np.zeros((1, rows, 2)), k=keys, v=keys, start=start, **more)


def test_passes_that_cannot_be_joined_are_refused():
    """Keys that changed in the cache, keys that are missing, and other scales are refused by name."""
    keys = np.arange(12.0).reshape(1, 6, 2)
    growing = Growing(recorded(4, keys[:, :4], 0))
    growing.add(recorded(1, keys[:, 2:5], 2))  # a window's cache has dropped two
    np.testing.assert_array_equal(growing.joined()[0].k, keys[:, :5])
    for found, start, more, said in (
        (-keys, 5, {}, "have changed"),
        (keys, 5, {"scale": 2.0}, "the scale, the heads or the sinks differ"),
        (keys, 7, {}, "6 keys from position -2 after 5"),
    ):
        with pytest.raises(rg.Refused, match=said):
            growing.add(recorded(1, found, start, **more))


def test_a_large_picture_becomes_a_small_file():
    """Noise of many pixels, which cannot be packed, is thinned out until the file is small."""
    noise = np.random.default_rng(0).integers(0, 256, (600, 500, 3)).astype(np.uint8)
    made = png(noise)
    assert made.startswith(b"\x89PNG") and 10_000 < len(made) <= 200_000
