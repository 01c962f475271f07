"""Answers to what a page asks: the right numbers, as codes or as JSON, with nothing in them that could act."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers as T

import regard as rg
from regard.lens import Axis, Run, Segment, look
from regard.lens.runs.projections import LayerProjections, Projection
from regard.lens.viewer import queries
from regard.lens.viewer import queries as answers
from regard.lens.viewer.queries import KEYS, origin
from regard.lens.viewer.routes import Responder
from tests.lens.client import unframed
from tests.lens.minilm import SENTENCE, with_minilm
from tests.support.browser import HOSTILE, example, fault


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
    assert found["axes"]["text"]["patches"]["image"] == "data:image/png;base64,iVBORw=="
    assert [len(found["axes"]["text"][name]) for name in ("tokens", "gap", "special")] == [len(HOSTILE)] * 3
    (about,) = found["calls"]
    assert about["notes"] == {"scale": None, shown: [shown, [1, None]]}


def test_a_head_that_sees_nothing_has_no_figures():
    """A figure that is not a number is null, and the others stay."""
    run, _ = example(6, layers=1, heads=2, mask=(rg.head == 0) & (rg.key <= rg.query))
    figures = answers.about(run)["calls"][0]["figures"]
    assert {(first is None, second is None) for first, second in figures.values()} == {(False, True)}


# Where a run comes from: the Python that a page hands on gives the same run, or says that it has to be saved.


@with_minilm
def test_the_python_of_a_page_gives_the_same_run(folders, monkeypatch):
    """Chosen layers, one of several texts, what a model writes, and a folder that is named from where it lies."""
    folder = folders["gpt2"]
    monkeypatch.chdir(folder.parent)
    runs = [
        look(None, SENTENCE, layers=[3]),
        look(folder.name, [SENTENCE, "it was"], entry=1, layers="*.1.*"),
        look(folder.name, "the animal", generate=4, values=False),
    ]
    monkeypatch.chdir("/")
    for run in runs:
        same = again(run)
        assert (same.text, same.axes, same.steps) == (run.text, run.axes, run.steps)
        assert same.facts["made"] == run.facts["made"]
        for one, other in zip(same.calls, run.calls, strict=True):
            np.testing.assert_array_equal(one.weights(), other.weights())
            assert (one.name, one.v is None) == (other.name, other.v is None)
    assert run.steps


def again(run):
    """The run that the Python of its page gives."""
    return eval(origin(run), {"rg": rg})


def test_what_words_cannot_say_is_to_be_saved(folders, tmp_path):
    """Arrays, modules, loaded models and inputs: the Python of the page says so, and gives the run once it is saved."""
    q, inputs = np.random.default_rng(0).standard_normal((1, 5, 8)), {"input_ids": torch.tensor([[3, 4]])}
    for what, more in (
        (q, {"k": q}),
        (T.AutoModel.from_pretrained(folders["gpt2"]), {"inputs": inputs}),
        (folders["gpt2"], {"inputs": inputs}),
    ):
        run = look(what, **more)
        assert origin(run) == 'rg.Run.open("run")  # save it first: run.save("run")'
        kept = run.save(tmp_path / "run", overwrite=True)
        np.testing.assert_array_equal(again(kept).calls[0].weights(), run.calls[0].weights())


# The matrices of a layer as a page requests them: those of one head, and what they give, compared with NumPy.

N, H, G, D, E, M = 9, 4, 2, 8, 6, 20
RANDOM = np.random.default_rng(3)


def layer(bias=True):
    """A causal layer with shared keys, and the input, outputs and matrices that gave them."""

    def draw(*sizes):
        return RANDOM.standard_normal(sizes).astype(np.float32)

    def projection(*sizes):
        return Projection(draw(*sizes), draw(*sizes[:-1]) if bias else None)

    x, parts = draw(N, M), (projection(H, D, M), projection(G, D, M), projection(G, E, M))
    q, k, v = (part.of(x).swapaxes(0, 1).astype(np.float32) for part in parts)
    (call,) = rg.look(q, k=k, v=v, mask=rg.causal()).calls
    out = np.asarray(call.weights() @ np.repeat(v, H // G, 0), np.float32)
    o = projection(M, H * E)
    y = o.of(out.swapaxes(0, 1).reshape(N, -1)).astype(np.float32)
    return dataclasses.replace(call, x=x, out=out, projections=LayerProjections(*parts, o, y))


@pytest.mark.parametrize("bias", [True, False])
def test_one_head(bias):
    """Its own rows of W_q, those of its key/value head of W_k and W_v, and its columns of W_o; with the input of a row
    and key they give q, k, and the part of the head in the output. Keys before the first row, and keys of another text,
    have no input. (What is not there: test_server.)
    """
    call = layer(bias)
    whole, run = call.projections, Run("toy", "", {"keys": Axis.of(N, name="keys")}, (call,))
    for other in (dataclasses.replace(call, start=4), dataclasses.replace(call, keys="pictures")):
        assert "x_key" not in queries.products(other, 0, 0, 3)
    for head in range(H):
        _, found = unframed(Responder([run]).answer("matrices", "0", "0", str(head)))
        _, made = unframed(Responder([run]).answer("products", "0", "0", str(head), "5", "2"))
        own = {"q": head, "k": head // 2, "v": head // 2}
        exact = {name: getattr(whole, name).w[at] for name, at in own.items()}
        exact["o"] = whole.o.w[:, E * head : E * head + E]
        if bias:
            exact |= {f"{name}_bias": getattr(whole, name).b[at] for name, at in (own | {"o": slice(None)}).items()}
        assert found.keys() == exact.keys() and all(np.array_equal(found[name], exact[name]) for name in exact)
        for product, right in (
            (found["q"] @ made["x"] + found.get("q_bias", 0), call.q[head, 5]),
            (found["k"] @ made["x_key"] + found.get("k_bias", 0), call.k[head // 2, 2]),
            (made["by_head"][head], found["o"] @ call.out[head, 5]),
            (made["whole"], made["y"]),
            (made["heads"].reshape(H, E), call.out[:, 5]),
        ):
            np.testing.assert_allclose(product, right, rtol=1e-4, atol=1e-5)


def test_about_says_what_is_known():
    """The known matrices, those with a bias, and why the others are missing. (Without biases: test_walk_numbers.)"""
    call, bare = layer(), {"known": [], "biased": []}
    assert queries.known_matrices(call) == {"known": [*"qkvo"], "biased": [*"qkvo"], "missing": {}}
    rotated = dataclasses.replace(call, projections=LayerProjections(missing={"q": "rotated"}))
    assert queries.known_matrices(rotated) == bare | {"missing": {"q": "rotated"}}
    call = dataclasses.replace(call, projections=None)
    assert queries.known_matrices(call) == bare | {"missing": {}} and queries.matrices(call, 0) == {}
    assert queries.kept(call, {"head": 0, "query": 0}) is None


def test_a_page_has_the_strongest_elements(monkeypatch):
    """As many as fit: those that add most to the score of the strongest key, and the largest of the output."""
    call, start = layer(), {"head": 3, "query": 6}
    key = int(call.weights(rows=6, heads=3)[0, 0].argmax())
    header, whole = unframed(queries.kept(call, start))
    assert (header["head"], header["row"], header["key"]) == (3, 6, key)
    largest = sorted(np.argsort(-np.abs(call.projections.y[6]))[:16].tolist())
    assert header["elements"] == {"q": [*range(D)], "k": [*range(D)], "v": [*range(E)], "o": largest}
    assert whole["by_head"].shape == (H, 16)
    fixed = sum(part.nbytes for name, part in queries.products(call, 3, 6, key).items() if name != "by_head")
    monkeypatch.setattr(queries, "ROOM", fixed + 3 * 4 * M * 3)
    header, some = unframed(queries.kept(call, start))
    strongest = np.sort(np.argsort(-np.abs(call.q[3, 6] * call.k[1, key]))[:3])
    assert header["elements"]["q"] == header["elements"]["k"] == strongest.tolist()
    assert np.array_equal(some["q"], whole["q"][strongest]) and some["q_bias"].shape == (3,)
    monkeypatch.setattr(queries, "ROOM", fixed)
    assert queries.kept(call, start) is None
