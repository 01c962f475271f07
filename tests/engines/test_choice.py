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


CALLS = {
    "attention": lambda **more: rg.attention(q, k, v, **more),
    "attention_backward": lambda **more: rg.attention_backward(q, q, k, v, **more),
    "attention_stats": lambda **more: rg.attention_stats(q, k, of="entropy", **more),
    "explain": lambda **more: rg.explain(q, k, v, **more),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_engine_by_name_is_refused(call):
    """A requested engine runs or raises `Refused`, with the engine's reason; if there is none of that name, with the
    closest name.
    """
    for engine, words in (("jit", "engine 'jit' does not support this"), ("jot", "no such engine")):
        with pytest.raises(Refused, match=words) as caught:
            call(mask=rg.window(18), engine=engine)
        (reason,) = caught.value.reasons
        if engine == "jit":
            assert (reason.given, reason.fix) == (WHY, 'use engine="auto"')
        else:
            assert "did you mean 'jit'?" in reason.fix
