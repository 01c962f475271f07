"""Answers to what a page asks: the right numbers, as codes or as JSON, with nothing in them that could act."""

import dataclasses
import json

import numpy as np
import pytest

import regard as rg
from regard.lens import Run, Segment
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.codes import MASKED, decode
from regard.lens.viewer import queries as answers
from regard.lens.viewer.queries import KEYS
from regard.lens.viewer.routes import Responder
from tests.lens.client import near, unframed
from tests.support.browser import HOSTILE, example, fault
from tests.support.engines import normal


def test_a_pair_is_asked_of_every_call_between_its_axes():
    """Every head of every call over the two axes answers; calls between others do not."""
    run, exact = example(layers=3, keys=12)
    elsewhere = fault(run, call=1, keys="text", k=run.calls[1].k[:, :8], v=run.calls[1].v[:, :8])
    header, parts = unframed(Responder([elsewhere]).answer("pair", "0", "text", "source", "3", "10"))
    assert header["calls"] == [0, 2] and (parts["coarse"] != MASKED).all()
    near(decode(parts["coarse"], parts["fine"]), np.array(exact)[[0, 2], :, 3, 10].ravel())


@pytest.mark.parametrize("sinks", [None, np.array([[2.0, 1.0], [-np.inf, 0.5]], np.float32)])
@pytest.mark.parametrize("given", [False, True])
def test_ordinary_keys_have_what_special_tokens_and_sinks_leave(sinks, given):
    """Σ p over the keys that are no special tokens; 0 in a row that may attend nothing."""
    q, k = normal(2, 2, 7, 8)
    special, allowed = np.arange(7) % 3 == 0, np.tri(7, k=-1, dtype=bool)
    run = of_arrays(q, k, mask=allowed, sinks=sinks, special=special)
    if given:
        run = of_weights(run.calls[0].weights() * 0.7, special=special)
    for head, p in enumerate(run.calls[0].weights()):
        tracks = answers.tracks(run.calls[0], head)
        np.testing.assert_allclose(tracks["ordinary"], p[:, ~special].sum(-1), atol=2e-6)
        np.testing.assert_allclose(tracks["received"], p.sum(0), rtol=1e-5, atol=1e-6)
    assert answers.tracks(dataclasses.replace(run.calls[0], rows={}, received=None), 0) == {}


def test_a_walk_leads_from_the_input_to_the_output():
    """The numbers of each step follow from those before: q·k scaled, scores, p = exp(score − lse) where allowed, Σ p
    v.
    """
    run, exact = example(90, heads=4, groups=2, mask=rg.causal())
    call, p = run.calls[1], exact[1][3, 70]
    found = answers.walk(call, 3, 70)
    json.dumps(found, allow_nan=False)
    keys = found["keys"]
    assert keys == sorted({*range(63, 72), *np.argsort(-p)[: KEYS - 9]} | {*keys}) and len(keys) == KEYS
    assert found["scores"] == found["scaled"] and found["allowed"] == [j <= 70 for j in keys]
    for name, right in {
        "q": call.q[3, 70],
        "k": call.k[1, keys],
        "scaled": call.scale * call.k[1, keys] @ call.q[3, 70],
        "lse": call.lse[3, 70],
        "p": p[keys],
        "v": call.v[1, keys],
        "sum": p @ call.v[1],
        "out": call.out[3, 70],
        "x": call.x[70],
    }.items():
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-4 if name == "scaled" else 1e-6)
    assert {name: found[name] for name in "QKDE"} == {"Q": 90, "K": 90, "D": 8, "E": 8}


def test_a_walk_says_what_was_not_kept_and_what_is_no_number():
    """Null for what was not kept, words for what is not finite; a masked NaN among the values does not reach the
    sum.
    """
    run, _ = example(10, mask=rg.causal(), poison=lambda q, k: q.__setitem__((0, 4, 0), np.inf))
    v = run.calls[0].v.copy()
    v[0, 9] = np.nan
    bare = fault(run, v=v, x=None, out=None).calls[0]
    found, bad = answers.walk(bare, 0, 3), answers.walk(bare, 0, 4)
    assert [name for name, part in found.items() if part is None] == ["x", "sinks", "out"]
    assert {*map(type, found["sum"])} == {float} and found["v"][9] == ["NaN"] * 8
    assert {"NaN", "inf", "-inf"} >= {part for part in bad["p"] if isinstance(part, str)} != set()
    found = answers.walk(fault(run, given=np.eye(10)[None], q=None, k=None, v=None).calls[0], 0, 3)
    assert [found[name] for name in ("q", "k", "scores", "sum")] == [None] * 4
    assert found["p"] == [float(j == 3) for j in range(10)]


def test_what_a_page_starts_from_is_harmless_json():
    """Names, tokens, facts and notes are foreign text: made visible; numbers that are none are null."""
    run, _ = example(len(HOSTILE), layers=1, tokens=HOSTILE)
    evil, shown, grid = HOSTILE[5], "⟨U+202E⟩gnp.exe", (1, len(HOSTILE))
    axis = dataclasses.replace(run.axes["text"], segments=(Segment(0, 3, evil),), picture=b"\x89PNG", grid=grid)
    notes = {"scale": np.float32("nan"), evil: [evil, (1, None)]}
    call = dataclasses.replace(run.calls[0], name=evil, engine="\x1b[31m", notes=notes)
    facts = {"hash": np.int64(3), "at": float("inf")}
    found = answers.about(Run(evil, f"a text\nof two lines {evil}", {"text": axis}, (call,), facts=facts))
    assert not set(json.dumps(found, allow_nan=False, ensure_ascii=False)) & set("\u202e\u2028\x1b\ud800\n")
    assert (found["model"], found["text"]) == (shown, f"a text⏎of two lines {shown}")
    assert found["facts"] == {"hash": 3, "at": None}
    assert found["axes"]["text"]["image"] == "data:image/png;base64,iVBORw=="
    assert [len(found["axes"]["text"][name]) for name in ("tokens", "gap", "special")] == [len(HOSTILE)] * 3
    (about,) = found["calls"]
    assert about["notes"] == {"scale": None, shown: [shown, [1, None]]}


def test_a_head_that_sees_nothing_has_no_figures():
    """A figure that is not a number is null, and the others stay."""
    run, _ = example(6, layers=1, heads=2, mask=(rg.head == 0) & (rg.key <= rg.query))
    figures = answers.about(run)["calls"][0]["figures"]
    assert {(first is None, second is None) for first, second in figures.values()} == {(False, True)}
