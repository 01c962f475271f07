"""Engine choice if the compiled engine does not support a problem; a stub reports that, because it supports all."""

import pytest

import regard as rg
from regard.engines import jit
from tests.support.engines import normal
from tests.support.lanes import by_name
from tests.support.refusals import reasons_of

WHY = "this machine has no vectors"
q, k, v = normal(3, 2, 30, 8)


@pytest.fixture(autouse=True)
def refusing(monkeypatch):
    """The compiled engine reports that it supports nothing. test_other_systems computes without it."""
    monkeypatch.setattr(jit, "why_not", lambda problem: [WHY])


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


@by_name("call", CALLS)
def test_the_engine_by_name_is_refused(call):
    """A requested engine runs or raises `Refused`, with the engine's reason; if there is none of that name, with the
    closest name.
    """
    for engine, what, given, fix in (
        ("jit", "engine 'jit' does not support this", WHY, 'use engine="auto"'),
        ("jot", "no such engine", "engine='jot'", "did you mean 'jit'?"),
    ):
        (reason,) = reasons_of(call, mask=rg.window(18), engine=engine)
        assert reason.what.startswith(what) and reason.given == given and fix in reason.fix
