"""The walk, the pair in every head and the scrubber in a real browser: every number is that of plain NumPy."""

import dataclasses
from functools import partial

import numpy as np
import pytest

import regard as rg
from regard.lens import Call
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.runs.figures import of_weights
from regard.lens.runs.run import Step
from regard.lens.viewer import page
from tests.support.browser import example, fault, near
from tests.support.page_map import Map

HALF = 2.0**-11  # of a number kept in 16 bits
TOKENS = ("[CLS]", " The", " animal", " did", " not", " cross", " the", " street", ".", "[SEP]")
SPECIAL = [token[0] == "[" for token in TOKENS]
N, HEADS, GROUPS, D, E = len(TOKENS), 4, 2, 8, 6
ROW, HEAD = 7, 3
CAP, SCALE = 3.0, 0.4


def steps(call):
    """The steps of the row in NumPy, over all keys, and how far each may be off where q, k and v are kept in 16 bits
    and the weights as their codes.
    """
    q, k, v = call.q[HEAD, ROW].astype(float), call.k[HEAD // 2].astype(float), call.v[HEAD // 2].astype(float)
    products = k @ q
    scores = CAP * np.tanh(SCALE * products / CAP)
    allowed = np.arange(N) <= ROW
    weights = np.where(allowed, np.exp(scores), 0)
    p = weights / (weights.sum() + np.exp(call.sinks[HEAD].astype(float)).sum())
    off = 2.001 * HALF * (np.abs(k) @ np.abs(q)) + 1e-6
    return {
        "products": (products, off),
        "scaled": (SCALE * products, SCALE * off),
        "scores": (np.where(allowed, scores, np.nan), FINE_ERROR + 1e-4 * np.abs(scores)),  # none behind the mask
        "mask": (allowed, 0),
        "p": (p, FINE_ERROR * p + 1e-9),
        "sum": (p @ v, (FINE_ERROR + 1.001 * HALF) * (p @ np.abs(v))),
    }


@pytest.fixture(scope="module")
def walked(kept_open):
    """A page of one call with every rule, shared keys, scale, softcap, causal mask and sinks, with x, v and out, opened
    at its row with all steps, and that call.
    """
    draw = partial(np.random.default_rng(7).standard_normal, dtype=np.float32)
    q, k, v = 2 * draw((HEADS, N, D)), 2 * draw((GROUPS, N, D)), draw((GROUPS, N, E))
    rules = {"mask": rg.causal(), "score": rg.softcap(CAP), "scale": SCALE, "sinks": draw((HEADS, 1))}
    run = rg.look(q, k=k, v=v, tokens=TOKENS, special=SPECIAL, **rules)
    run = fault(run, x=draw((N, 40)), out=rg.attention(q, k, v, **rules))
    return all_steps(kept_open(run, f"#head={HEAD}&query={ROW}")), run.calls[0]


def column(opened, step):
    """The results of a step by key, as the page shows them; NaN where it has none."""
    answer = "['.number', 'data'].map((part) => node.querySelector(part)).map((each) => each.value ?? each.textContent)"
    return {int(j): float(value or "nan") for j, value in opened.each(f"#walk-{step} .walk-keys li", answer)}


def all_steps(view):
    """The page, with every step shown."""
    view.reach("walk")
    view.tab.evaluate("for (const step of document.querySelectorAll('#walk-steps details')) step.open = true")
    view.tab.evaluate("walk.set({ every: true })")
    view.settled()
    return view


def test_every_step_has_the_numbers_of_numpy(walked):
    """q·k, scaled, capped, masked, shared and summed up, as the formulas say; vectors are those of the call. (Read
    by the keyboard: test_walk_numbers.)
    """
    opened, call = walked
    wanted = steps(call)
    for step in ("products", "scaled", "scores", "mask", "p"):
        shown = column(opened, step)
        value, off = wanted[step]
        assert sorted(shown) == list(range(N))
        apart = np.abs([shown[j] for j in range(N)] - value)
        np.testing.assert_array_equal(np.isnan(apart), np.isnan(value))
        assert (np.nan_to_num(apart) <= off).all(), step
    kept = {"k": call.k[HEAD // 2], "v": call.v[HEAD // 2], "x": call.x[ROW]}
    for step, exact in {**kept, "q": call.q[HEAD, ROW], "out": call.out[HEAD, ROW], "sum": wanted["sum"][0]}.items():
        off = wanted["sum"][1] if step == "sum" else 1.001 * HALF * np.abs(exact)
        assert (np.abs(opened.tab.evaluate(f"walk.numbers.{step}") - exact) <= off + 1e-7).all(), step


def test_each_step_has_its_formula_and_shape(walked):
    """The rules are those of the call, with its own numbers; what the sinks take is 1 − Σ p; heads that share keys
    are named.
    """
    opened, call = walked
    for step, parts in {
        "head-q": ["D = 8"],
        "head-k": [f"{N} × {D}"],
        "head-v": [f"{N} × {E}"],
        "head-sum": [f"E = {E}"],
        "head-scaled": ["scale = 0.4"],
        "head-scores": [str(call.score)],
        "head-mask": [str(call.mask)],
        "head-p": [f"{call.lse[HEAD, ROW]:.4f}"[:5], "sink"],
        "p": [f"take {100 * (1 - steps(call)['p'][0].sum()):.3g}"],
        "k": ["Heads 2 to 3 share"],
    }.items():
        said = " ".join(opened.text(f"#walk-{step}").split())
        assert all(part in said for part in parts), (step, said)


def test_a_step_opens_and_closes_by_keyboard(walked):
    """What is open stays open in another row."""
    opened, _ = walked
    opened.tab.focus("#walk-head-q")
    opened.press("Enter")
    assert not opened.tab.query_selector("#walk-q > *")
    opened.choose(query=ROW - 1)
    assert opened.tab.query_selector("#walk-k > *") and not opened.tab.query_selector("#walk-q > *")
    opened.choose(query=ROW)
    opened.tab.focus("#walk-head-q")
    opened.press("Enter")
    assert opened.tab.query_selector("#walk-q > *")


def test_what_is_not_there_is_said(opened):
    """Weights alone have no walk to them; v, x and out that were not kept say how to have them; an empty row is no
    fault, also where the model gives something else than 0 to it.
    """
    run, exact = example(6, 1, 1)
    given = exact[0].astype(np.float32)
    call = Call("given", 0, "text", "text", given=given, **of_weights(given, np.zeros(6, bool), mask=None, start=0))
    alone = all_steps(opened(page(dataclasses.replace(run, calls=(call,)), start={})))
    assert not alone.tab.is_visible("#walk-head-scores") and not alone.tab.is_visible(
        "#walk-head-mask"
    )  # they do nothing
    for step in ("q", "k", "products", "scaled"):
        assert "recorded as weights alone" in alone.text(f"#walk-{step}")
    near(column(alone, "p"), exact[0][0, 0], FINE_ERROR)
    bare = all_steps(opened(fault(run, v=None, x=None, out=None)))
    assert all("values=True" in bare.text(f"#walk-{step}") for step in ("x", "v", "sum", "out"))
    masked, _ = example(6, 1, 1, mask=rg.key < rg.query)
    empty = all_steps(opened(page(masked, start={})))
    assert "This row is fully masked: its output is 0 (law 5)." in empty.text("#walk-p")
    notes = {"compared": "all rows", "difference": 1e-7, "empty": "an average of values"}
    empty = all_steps(opened(page(fault(masked, out=masked.calls[0].v, notes=notes), start={})))
    assert "For fully masked rows, the output of the model itself is an average of values." in empty.text("#walk-p")
    assert "equal to the output" not in empty.text("#walk-out")


def test_what_is_not_finite_is_shown(opened):
    """NaN and infinity stand in the vectors, the scores and the shares, and the page says how many of the shares are no
    numbers.
    """

    def poison(q, k):
        q[0, 4, 0], k[0, 2] = np.inf, np.nan

    run, exact = example(6, 1, 1, mask=rg.causal(), poison=poison)
    seen = all_steps(opened(run, "#query=4"))
    assert seen.tab.evaluate("walk.numbers.q[0] === Infinity && walk.numbers.k[2].every(Number.isNaN)")
    bad = int(np.isnan(exact[0][0, 4]).sum())
    assert sum("not a number" in line for line in seen.each("#walk-p li", "node.innerText")) == bad > 1
    assert f"{bad} of the 6 weights here are not numbers" in seen.text("#walk-p")
    assert f"{bad} weights are not between 0 and 1." in seen.text("#strongest-note")


def test_a_pair_in_every_head(opened):
    """The heads of all layers with the largest p_ij, strongest first; a click chooses one, and the pair stays. A masked
    pair has no weight in any head; without a chosen key there is no pair.
    """
    run, exact = example(10, 3, 4, mask=rg.causal())
    view, exact = opened(run), np.stack(exact)
    assert not view.tab.is_visible("#pair")
    view.choose(call=1, head=2, query=8, key=2)
    answer = "[node.firstChild.dataset.call, node.firstChild.dataset.head, node.lastChild.value].map(Number)"
    shown = {(call, head): p for call, head, p in view.each("#pair li", answer)}
    assert list(shown) == sorted(np.ndindex(3, 4), key=lambda at: -exact[at][8, 2])[:6]
    near(shown, exact[:, :, 8, 2], FINE_ERROR)
    view.click("#pair li:first-child button")
    assert view.state("call", "head", "query", "key") == (*next(iter(shown)), 8, 2)
    view.choose(query=3, key=9)
    assert view.text("#pair") == "no head has weight on this pair"


def test_what_was_written(opened):
    """Each step shows the row that wrote, its candidates with their probabilities, and which of them was taken; tokens
    that were not yet written are faint in the text, and not in the map.
    """
    run, _ = example(8, 1, 1, mask=rg.causal())
    candidates = [((" word5", 0.5), (" other", 0.25)), ((" other", 0.75), (" word6", 0.125)), ((" other", 1.0),)]
    seen = opened(dataclasses.replace(run, steps=tuple(Step(5 + at, each) for at, each in enumerate(candidates))))

    def shown():
        answer = "[node.querySelector('bdi').textContent, Number(node.querySelector('data').value), node.className]"
        return seen.state("step", "query"), seen.each("#steps-candidates li", answer), seen.text("#steps-said")

    seen.tab.focus("#steps-slider")
    seen.press("Home", ">", "<")
    place, listed, said = shown()
    assert (place, listed) == ((0, 4), [["word5", 0.5, "taken"], ["other", 0.25, ""]])
    assert "“word5” (token 5) was predicted from “word4” (token 4)" in said and "the likeliest" in said
    seen.press("ArrowRight")
    place, listed, said = shown()
    assert (place, listed) == ((1, 5), [["other", 0.75, ""], ["word6", 0.125, "taken"]]) and "candidate 2" in said
    assert seen.each("#words .later", "Number(node.dataset.token)") == [6, 7]
    assert [Map(seen).pixel(row, 1)[3] for row in (5, 6)] == [255, 0]
    seen.press("ArrowRight")
    assert "not among the stored candidates" in seen.text("#steps-said")
    seen.click("#steps-whole")
    assert seen.state("step") is None and not seen.tab.query_selector("#words .later")
