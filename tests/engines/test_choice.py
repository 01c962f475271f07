"""Engine choice if the compiled engine does not support a problem; a stub reports that, because it supports all."""

import numpy as np
import pytest

import regard as rg
from regard import Refused
from regard.engines import jit

WHY = "this machine has no vectors"
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 30, 8), dtype=np.float32)


@pytest.fixture(autouse=True)
def refusing(monkeypatch):
    """The compiled engine reports that it supports nothing, and raises if it runs."""

    def runs(*_):
        raise AssertionError("the compiled engine ran")

    monkeypatch.setattr(jit, "why_not", lambda problem: [WHY])
    monkeypatch.setattr(jit, "solve", runs)
    monkeypatch.setattr(jit, "keep", runs)
    monkeypatch.setattr(jit, "run", runs)


def test_auto_takes_the_law_instead():
    """The result is bit-identical to that of engine="reference"; so are lse, gradients, statistics and a cache."""
    mask = rg.causal() & rg.window(17)  # not used by other tests: a known call would take the fast path
    out, lse = rg.attention_with_lse(q, k, v, mask=mask)
    law, law_lse = rg.attention_with_lse(q, k, v, mask=mask, engine="reference")
    assert np.array_equal(out, law) and np.array_equal(lse, law_lse)

    found = rg.attention_backward(out, q, k, v, mask=mask)
    wanted = rg.attention_backward(out, q, k, v, mask=mask, engine="reference")
    assert all(np.array_equal(a, b) for a, b in zip(found[:3], wanted[:3], strict=True))

    entropy = rg.attention_stats(q, k, of="entropy", mask=mask).entropy
    assert np.array_equal(entropy, rg.attention_stats(q, k, of="entropy", mask=mask, engine="reference").entropy)

    cache = rg.KVCache(heads=2, depth=8)
    cache.append(k, v)
    assert np.array_equal(cache.attend(q, mask=mask), law)


def test_explain_says_why():
    """The reasons against the compiled engine are reported with the engine that was chosen."""
    found = rg.explain(q, k, v, mask=rg.window(17))

    assert (found.engine, found.why, found.whole, found.target) == ("reference", [WHY], True, None)
    assert f"engine  reference: {WHY}" in str(found)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rg.attention(q, k, v, mask=rg.window(18), engine="jit"),
        lambda: rg.attention_backward(q, q, k, v, mask=rg.window(18), engine="jit"),
        lambda: rg.attention_stats(q, k, of="entropy", engine="jit"),
        lambda: rg.explain(q, k, v, engine="jit"),
    ],
    ids=["attention", "attention_backward", "attention_stats", "explain"],
)
def test_the_engine_by_name_is_refused(call):
    """A requested engine runs or raises `Refused`, with the engine's reason."""
    with pytest.raises(Refused, match="engine 'jit' does not support this") as caught:
        call()
    (reason,) = caught.value.reasons
    assert (reason.given, reason.fix) == (WHY, 'use engine="auto"')


def test_no_such_engine_is_refused_everywhere():
    """The same words for every function that takes an engine, with the closest name."""
    for call in (
        lambda: rg.attention(q, k, v, engine="jot"),
        lambda: rg.attention_backward(q, q, k, v, engine="jot"),
        lambda: rg.attention_stats(q, k, of="entropy", engine="jot"),
        lambda: rg.explain(q, k, v, engine="jot"),
    ):
        with pytest.raises(Refused, match="no such engine") as caught:
            call()
        assert "did you mean 'jit'?" in caught.value.reasons[0].fix
