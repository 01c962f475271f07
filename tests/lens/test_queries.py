"""Answers to what a page asks: the right numbers, as codes or as JSON, with nothing in them that could act."""

import dataclasses
import json

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Call, Run, Segment
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.codes import FINE_ERROR, decode
from regard.lens.viewer import queries as answers
from regard.lens.viewer.row_walk import KEYS
from tests.support.browser import HOSTILE, example, fault, near


@pytest.fixture(scope="module")
def run():
    """Two layers of grouped heads over a text, causal, and the weights as `attention_weights` gives them."""
    return example(90, heads=4, groups=2, mask=rg.causal())


def test_rows_and_columns_are_those_of_the_matrix(run):
    """What a row looks at and who looks at a key, within the error of the codes; masked pairs are told."""
    run, exact = run
    for head in (0, 3):
        row, column = answers.row(run.calls[1], head, 40), answers.column(run.calls[1], head, 40)
        near(dict(enumerate(decode(*row))), exact[1][head, 40], FINE_ERROR)
        near(dict(enumerate(decode(*column))), exact[1][head, :, 40], FINE_ERROR)
        assert (row[0] == 0).tolist() == [j > 40 for j in range(90)]
        assert (column[0] == 0).tolist() == [i < 40 for i in range(90)]


def test_a_pair_is_asked_of_every_call_between_its_axes():
    """Every head of every call over the two axes answers; calls between others do not."""
    run, exact = example(8, layers=3, keys=12)
    elsewhere = fault(run, call=1, keys="text", k=run.calls[1].k[:, :8], v=run.calls[1].v[:, :8])
    found = answers.pair(elsewhere, "text", "source", 3, 10)
    assert [each["call"] for each in found] == [0, 2]
    for each in found:
        np.testing.assert_allclose(each["weights"], exact[each["call"]][:, 3, 10], rtol=1e-5)
        assert each["allowed"].all()
    assert answers.pair(run, "source", "text", 0, 0) == []


def test_tracks_are_the_figures_of_a_head(run):
    """Along the rows entropy and the like, along the keys what each receives; a call that has no figures has no
    tracks.
    """
    run, exact = run
    found = answers.tracks(run.calls[0], 2)
    np.testing.assert_allclose(found["maximum"], exact[0][2].max(-1), rtol=1e-5)
    np.testing.assert_allclose(found["received"], exact[0][2].sum(0), rtol=1e-5)
    assert all(part.dtype == np.float32 for part in found.values())
    assert answers.tracks(dataclasses.replace(run.calls[0], rows={}, received=None), 0) == {}


@pytest.mark.parametrize("sinks", [None, np.array([[2.0, 1.0], [-np.inf, 0.5]], np.float32)])
@pytest.mark.parametrize("given", [False, True])
def test_ordinary_keys_have_what_special_tokens_and_sinks_leave(sinks, given):
    """Σ p over the keys that are no special tokens; 0 in a row that may attend nothing."""
    draw = np.random.default_rng(1).standard_normal
    q, k = draw((2, 2, 7, 8), dtype=np.float32)
    special = np.arange(7) % 3 == 0
    allowed = np.arange(7)[None, :] <= np.arange(7)[:, None] - 1  # row 0 sees nothing
    p = np.nan_to_num(rg.attention_weights(q, k, mask=allowed, sinks=sinks))
    run = of_weights(p * 0.7, special=special) if given else of_arrays(q, k, mask=allowed, sinks=sinks, special=special)
    expected = run.calls[0].weights()[:, :, ~special].sum(-1)
    for head in range(2):
        np.testing.assert_allclose(answers.tracks(run.calls[0], head)["ordinary"], expected[head], atol=2e-6)


def test_a_walk_leads_from_the_input_to_the_output(run):
    """The numbers of each step follow from those before: q·k scaled, scores, p = exp(score − lse) where allowed, Σ p
    v.
    """
    run, exact = run
    head, i = 3, 70
    call = run.calls[1]
    found = answers.walk(call, head, i)
    keys = found["keys"]
    assert len(keys) == KEYS
    assert set(range(63, 72)) <= set(keys)
    assert keys == sorted(keys)
    assert set(np.argsort(-exact[1][head, i])[:40]) <= set(keys)
    q, k = np.array(found["q"]), np.array(found["k"])
    np.testing.assert_allclose(q, call.q[head, i], rtol=1e-5)
    np.testing.assert_allclose(k, call.k[1, keys], rtol=1e-5)
    np.testing.assert_allclose(found["scaled"], found["scale"] * k @ q, rtol=1e-4, atol=1e-4)
    assert found["scores"] == found["scaled"]
    assert found["allowed"] == [j <= i for j in keys]
    np.testing.assert_allclose(
        found["p"], np.where(found["allowed"], np.exp(np.array(found["scores"]) - found["lse"]), 0), rtol=1e-4
    )
    np.testing.assert_allclose(found["p"], exact[1][head, i, keys], rtol=1e-4)
    np.testing.assert_allclose(found["v"], call.v[1, keys], rtol=1e-5)
    np.testing.assert_allclose(found["sum"], exact[1][head, i] @ call.v[1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["out"], found["sum"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["x"], call.x[i], rtol=1e-5)
    assert {name: found[name] for name in "QKDE"} == {"Q": 90, "K": 90, "D": 8, "E": 8}
    json.dumps(found, allow_nan=False)


def test_a_walk_says_what_was_not_kept_and_what_is_no_number():
    """Null for what was not kept, words for what is not finite; a masked NaN among the values does not reach the
    sum.
    """
    run, _ = example(10, mask=rg.causal(), poison=lambda q, k: q.__setitem__((0, 4, 0), np.inf))
    v = run.calls[0].v.copy()
    v[0, 9] = np.nan
    bare = fault(run, v=v, x=None, out=None).calls[0]
    found = answers.walk(bare, 0, 3)
    assert (found["x"], found["out"], found["sinks"]) == (None, None, None)
    assert all(isinstance(value, float) for value in found["sum"])
    assert found["v"][9] == ["NaN"] * 8
    assert {"NaN", "inf", "-inf"} >= {part for part in answers.walk(bare, 0, 4)["p"] if isinstance(part, str)} != set()
    given = Call("a", 0, "text", "text", np.zeros((1, 10)), given=np.eye(10)[None])
    found = answers.walk(given, 0, 3)
    assert (found["q"], found["k"], found["scores"], found["sum"]) == (None, None, None, None)
    assert found["p"] == [float(j == 3) for j in range(10)]


def test_what_a_page_starts_from_is_harmless_json():
    """Names, tokens, facts and notes are foreign text: made visible; numbers that are none are null."""
    run, _ = example(len(HOSTILE), layers=1, tokens=HOSTILE)
    axis = dataclasses.replace(
        run.axes["text"], segments=(Segment(0, 3, HOSTILE[5]),), picture=b"\x89PNG", grid=(1, len(HOSTILE))
    )
    call = dataclasses.replace(
        run.calls[0],
        name=HOSTILE[5],
        engine="\x1b[31m",
        notes={"scale": np.float32("nan"), HOSTILE[5]: [HOSTILE[5], (1, None)]},
    )
    run = Run(
        "\u202emodel one",
        "a text\nof two lines " + HOSTILE[5],
        {"text": axis},
        (call,),
        facts={"hash": np.int64(3), "at": float("inf")},
    )
    found = answers.about(run)
    text = json.dumps(found, allow_nan=False, ensure_ascii=False)
    assert not set(text) & {"\u202e", "\u2028", "\x1b", "\ud800", "\n"}
    assert found["model"] == "⟨U+202E⟩model one"
    assert found["text"].startswith("a text⏎of two lines")
    assert found["facts"] == {"hash": 3, "at": None}
    assert found["axes"]["text"]["image"] == "data:image/png;base64,iVBORw=="
    assert [len(found["axes"]["text"][name]) for name in ("tokens", "gap", "special")] == [len(HOSTILE)] * 3
    (told,) = found["calls"]
    assert told["notes"] == {"scale": None, "⟨U+202E⟩gnp.exe": ["⟨U+202E⟩gnp.exe", [1, None]]}
    assert told["figures"]["entropy"] == pytest.approx(call.figures["entropy"], rel=1e-4)
    assert told["kept"] == {"v": True, "x": True, "out": True}
    assert (told["heads"], told["Q"], told["K"], told["only_weights"]) == (3, len(HOSTILE), len(HOSTILE), False)


def test_a_head_that_sees_nothing_has_no_figures():
    """A figure that is not a number is null, and the others stay."""
    run, _ = example(6, layers=1, heads=2, mask=(rg.head == 0) & (rg.key <= rg.query))
    figures = answers.about(run)["calls"][0]["figures"]
    assert all(values[1] is None and values[0] is not None for values in figures.values())
    assert answers.about(dataclasses.replace(run, axes={"text": Axis.of(6)}))["axes"]["text"]["tokens"] == list(
        "012345"
    )
