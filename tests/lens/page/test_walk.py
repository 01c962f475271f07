"""The walk, the pair in every head and the scrubber in a real browser: every number is that of plain NumPy."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from regard.language.problem import Problem
from regard.lens import Call, Run
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.runs.figures import measured, of_weights
from regard.lens.runs.run import Step
from regard.lens.viewer import page
from tests.lens.page.colors import distance, logarithmic
from tests.support.browser import example, fault, near

HALF = 2.0**-11  # of a number kept in 16 bits
TOKENS = ("[CLS]", " The", " animal", " did", " not", " cross", " the", " street", ".", "[SEP]")
SPECIAL = [token[0] == "[" for token in TOKENS]
N, HEADS, GROUPS, D, E = len(TOKENS), 4, 2, 8, 6
ROW, HEAD = 7, 3
CAP, SCALE = 3.0, 0.4


def layer():
    """A call with every rule: shared keys, scale, softcap, causal mask, sinks; with x, v and out."""
    random = np.random.default_rng(7)

    def draw(*shape):
        return random.standard_normal(shape, dtype=np.float32)

    q, k, v, x = 2 * draw(HEADS, N, D), 2 * draw(GROUPS, N, D), draw(GROUPS, N, E), draw(N, 40)
    given = {"mask": rg.causal(), "score": rg.softcap(CAP), "scale": SCALE, "sinks": draw(HEADS, 1)}
    problem = Problem.of(q[None], k[None], None, **given)
    rules = {"mask": problem.mask, "score": problem.score, "scale": problem.scale, "start": 0, "sinks": problem.sinks}
    figures = measured(q, k, np.array(SPECIAL), **rules)
    out = rg.attention(q, k, v, **given)
    return Call("layers.0.attention", 0, "text", "text", q=q, k=k, **rules, **figures, v=v, x=x, out=out)


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
    """A page of one call with every rule, opened at its row with all steps, and that call."""
    call = layer()
    run = Run("toy", "".join(TOKENS), {"text": rg.lens.Axis.of(TOKENS, SPECIAL)}, (call,))
    opened = kept_open(page(run), f"#head={HEAD}&query={ROW}")
    opened.reach("walk")
    opened.tab.evaluate("walk.set({ all: true, every: true })")
    return opened, call


def column(opened, step) -> dict[int, float]:
    """The results of a step by key, as the page shows them; NaN where it has none."""
    answer = "['.number', 'data'].map((part) => node.querySelector(part)).map((each) => each.value ?? each.textContent)"
    return {int(j): float(value or "nan") for j, value in opened.each(f"#walk-{step} .walk-keys li", answer)}


def all_steps(opened, html, address=""):
    """A page of which every step is shown."""
    view = opened(html, address)
    view.reach("walk")
    view.tab.evaluate("walk.set({ all: true })")
    return view


def test_every_step_has_the_numbers_of_numpy(walked):
    """q·k, scaled, capped, masked, shared and summed up, as the formulas say; vectors are those of the call."""
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
        if step in ("q", "sum", "out"):  # read by the keyboard's cursor
            opened.tab.focus(f"#walk-{step} canvas")
            opened.press("Home", "ArrowRight")
            said = opened.text(f"#walk-{step} .cells-readout").split("= ")[1].replace("−", "-")
            assert abs(float(said) - exact[1]) <= off[1] + 5e-5 * abs(exact[1]) + 1e-7


def test_each_step_has_its_formula_shape_and_law(walked):
    """The rules are those of the call, with its own numbers; laws are named where one speaks of the step; what the
    sinks take is 1 − Σ p, and heads that share keys are named.
    """
    opened, call = walked
    for step, parts in {
        "head-q": ["D = 8"],
        "head-k": [f"{N} × {D}"],
        "head-v": [f"{N} × {E}"],
        "head-sum": [f"E = {E}"],
        "head-scaled": ["scale = 0.4", "law 1"],
        "head-scores": [str(call.score)],
        "head-mask": [str(call.mask), "laws 2, 3 and 6"],
        "head-p": [f"{call.lse[HEAD, ROW]:.4f}"[:5], "sink"],
        "p": [f"take {100 * (1 - steps(call)['p'][0].sum()):.3g}"],
        "k": ["Heads 2 to 3 share"],
    }.items():
        said = " ".join(opened.text(f"#walk-{step}").split())
        assert all(part in said for part in parts), (step, said)


def test_one_step_at_a_time_by_keyboard(walked):
    """Arrows open the next step and close the one before; Home and End are the ends."""
    opened, _ = walked
    opened.tab.evaluate("walk.set({ all: false, every: false })")
    opened.click("#walk-head-x")
    opened.tab.focus("#walk-head-x")
    for key, step in (("ArrowDown", "q"), ("ArrowDown", "k"), ("ArrowUp", "q"), ("End", "y"), ("Home", "x")):
        opened.press(key)
        assert opened.each(".walk-head[aria-expanded=true]", "node.id") == [f"walk-head-{step}"]
        assert opened.tab.evaluate("document.activeElement.id") == f"walk-head-{step}"
    assert opened.state("query") == ROW


def test_what_is_not_there_is_said(opened):
    """Weights alone have no walk to them; v, x and out that were not kept say how to have them; an empty row is no
    fault.
    """
    run, exact = example(6, 1, 1)
    given = exact[0].astype(np.float32)
    call = Call("given", 0, "text", "text", given=given, **of_weights(given, np.zeros(6, bool), mask=None, start=0))
    alone = all_steps(opened, page(dataclasses.replace(run, calls=(call,)), start={}))
    for step in ("q", "k", "products", "scaled", "scores"):
        assert "recorded as weights alone" in alone.text(f"#walk-{step}")
    near(column(alone, "p"), exact[0][0, 0], FINE_ERROR)
    bare = all_steps(opened, page(fault(run, v=None, x=None, out=None)))
    assert all("values=True" in bare.text(f"#walk-{step}") for step in ("x", "v", "sum", "out"))
    masked, _ = example(6, 1, 1, mask=rg.key < rg.query)
    empty = all_steps(opened, page(masked, start={}))
    assert "This row is fully masked: its output is 0 (law 5)." in empty.text("#walk-p")


def test_what_a_model_gives_to_rows_that_may_attend_nothing_is_told(opened):
    """Where that is something else than 0, the walk says so, shows the model's own output, and does not take one for
    the other.
    """
    masked, _ = example(6, 1, 1, mask=rg.key < rg.query)
    out = masked.calls[0].out.copy()
    out[0, 0] = masked.calls[0].v[0].mean(0)
    notes = {"compared": "all rows", "difference": 1e-7, "empty": "an average of values"}
    seen = all_steps(opened, page(fault(masked, out=out, notes=notes), start={}))
    assert "For fully masked rows, the output of the model itself is an average of values." in seen.text("#walk-p")
    np.testing.assert_allclose(seen.tab.evaluate("walk.numbers.out"), out[0, 0], rtol=2e-3)
    said = seen.text("#walk-out")
    assert "equal to the output" not in said and "The largest difference" in said


def test_what_is_not_finite_is_shown(opened):
    """NaN and infinity stand in the vectors, the scores and the shares, and the page says how many of the shares are no
    numbers.
    """

    def poison(q, k):
        q[0, 4, 0], k[0, 2] = np.inf, np.nan

    run, exact = example(6, 1, 1, mask=rg.causal(), poison=poison)
    seen = all_steps(opened, page(run), "#query=4")
    assert seen.tab.evaluate("walk.numbers.q[0] === Infinity && walk.numbers.k[2].every(Number.isNaN)")
    bad = int(np.isnan(exact[0][0, 4]).sum())
    assert sum("not a number" in line for line in seen.each("#walk-p li", "node.innerText")) == bad > 1
    assert f"{bad} of the 6 weights here are not numbers" in seen.text("#walk-p")
    assert f"{bad} weights are not between 0 and 1." in seen.text("#strongest-note")


@pytest.fixture(scope="module")
def paired(kept_open):
    """A page of three causal layers of four heads, scrolled to the pair, and the exact weights."""
    run, exact = example(10, 3, 4, mask=rg.causal())
    opened = kept_open(page(run))
    opened.reach("pair")
    return opened, np.stack(exact)


def heads(opened) -> dict[tuple[int, int], float]:
    """The weights in the list of heads, in its order."""
    answer = "[node.dataset.call, node.dataset.head, node.querySelector('data').value].map(Number)"
    return {(call, head): p for call, head, p in opened.each("#pair-list .entry", answer)}


def test_a_pair_in_every_head(paired):
    """p_ij of every layer and head, strongest first; the cells have the colours of these weights."""
    opened, exact = paired
    opened.choose(call=0, head=0, query=8, key=2, scale="log")
    shown = heads(opened)
    assert list(shown) == sorted(np.ndindex(3, 4), key=lambda at: -exact[at][8, 2])
    near(shown, exact[:, :, 8, 2], FINE_ERROR)
    size = opened.tab.evaluate("pair.cell")
    for call, head in ((0, 1), (2, 3)):
        x, y = (size["left"] + head * size["width"] + 3, size["top"] + call * size["height"] + 3)
        assert distance(opened.pixel("#pair-canvas", int(x), int(y)), logarithmic(exact[call, head, 8, 2])) <= 6


def test_large_weights_of_a_pair_are_written_as_shares(opened):
    """A cell of 99.6 % says 99.6, not 1.0e+2; smaller ones have two digits."""
    run, _ = example(2, 1, 4)
    given = np.array([[[1 - p, p], [0.5, 0.5]] for p in (0.9961, 0.99961, 0.9449, 0.0123)], np.float32)
    seen = opened(page(fault(run, given=given, q=None, k=None), start={}), "#query=0&key=1")
    seen.reach("pair")
    drawn = seen.tab.evaluate(
        """() => {
            const drawn = [], pen = CanvasRenderingContext2D.prototype, draw = pen.fillText;
            pen.fillText = (text) => { drawn.push(String(text)); };
            pair.paint();
            pen.fillText = draw;
            return drawn;
        }"""
    )
    assert drawn[-4:] == ["99.6", "100", "94", "1.2"]


def test_a_pair_leads_to_its_heads(paired):
    """A click in the list or in the grid, and arrows in both, choose the head; the pair stays."""
    opened, _ = paired
    opened.choose(call=0, head=0, query=8, key=2)
    order = list(heads(opened))
    opened.click("#pair-list .entry >> nth=0")
    assert opened.state("call", "head", "key") == (*order[0], 2)
    opened.tab.focus("#pair-list")
    opened.press("ArrowDown")
    assert opened.state("call", "head") == order[1]
    size = opened.tab.evaluate("pair.cell")
    opened.click(
        "#pair-canvas", position={"x": size["left"] + 2.5 * size["width"], "y": size["top"] + 1.5 * size["height"]}
    )
    assert opened.state("call", "head") == (1, 2)
    opened.press("ArrowDown", "ArrowRight", "ArrowRight")
    assert opened.state("call", "head", "query", "key") == (2, 3, 8, 2)
    assert opened.text("#pair-readout").startswith("Layer 2, head 3: ")


def test_without_a_key_the_strongest_is_taken(paired):
    """Among the ordinary tokens, and it says so; it follows the row; and a masked pair has no weight in any head."""
    opened, exact = paired
    opened.choose(call=1, head=2, query=7, key=None)
    strongest = 1 + int(exact[1, 2, 7, 1:-1].argmax())
    assert f"({strongest})" in opened.text("#pair-title") and "not a special token" in opened.text("#pair-note")
    near(heads(opened), exact[:, :, 7, strongest], FINE_ERROR)
    opened.choose(query=3, key=9)
    assert heads(opened) == {} and "No head has weight on this pair." in opened.text("#pair-note")


def test_what_was_written(opened):
    """Each step shows the row that wrote, its candidates with their probabilities, and which of them was taken."""
    run, _ = example(8, 1, 1, mask=rg.causal())
    candidates = [((" word5", 0.5), (" other", 0.25)), ((" other", 0.75), (" word6", 0.125)), ((" other", 1.0),)]
    steps = tuple(Step(5 + at, each) for at, each in enumerate(candidates))
    seen = opened(page(dataclasses.replace(run, steps=steps)))

    def shown():
        answer = "[node.querySelector('bdi').textContent, Number(node.querySelector('data').value), node.className]"
        return seen.each("#steps-candidates li", answer), seen.text("#steps-said")

    seen.tab.focus("#steps-slider")
    seen.press("Home", ">", "<")
    assert seen.state("step", "query") == (0, 4)
    listed, said = shown()
    assert listed == [["word5", 0.5, "taken"], ["other", 0.25, ""]] and "the likeliest" in said
    assert "“word5” (token 5) was predicted from “word4” (token 4)" in said
    seen.press("ArrowRight")
    assert seen.state("step", "query") == (1, 5)
    listed, said = shown()
    assert listed == [["other", 0.75, ""], ["word6", 0.125, "taken"]] and "candidate 2" in said
    assert seen.each("#words .later", "Number(node.dataset.token)") == [6, 7]
    seen.click("#steps-on")
    assert "not among the stored candidates" in seen.text("#steps-said")
    seen.click("#steps-play")
    seen.tab.wait_for_selector("#steps-play[aria-label=play]")  # it begins anew and ends by itself
    assert seen.state("step") == 2
    seen.click("#steps-whole")
    assert seen.state("step") is None and not seen.tab.query_selector("#words .later")


def test_the_laws_are_explained_on_the_spot(walked):
    """Each law that a step names is beside it, in the words of the documentation."""
    opened, _ = walked
    laws = (Path(__file__).parents[3] / "docs/reference/laws.md").read_text(encoding="utf-8")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", lambda found: found[1] or "", " ".join(laws.split()))
    texts = opened.tab.evaluate("LAWS_OF_STEPS")
    assert {*map(str, opened.tab.evaluate("WALK.flatMap(({ laws }) => laws)"))} == {*texts}
    for number, (name, text) in texts.items():
        assert f"## {number}. {name} " in plain and text in plain, number
    opened.tab.evaluate("walk.set({ all: true })")
    shown = opened.tab.locator("#walk-mask .walk-laws")
    assert not shown.locator("p").first.is_visible()
    shown.locator("summary").click()
    for number, said in zip("236", shown.locator("p").all_inner_texts(), strict=True):
        assert said.startswith(f"Law {number}:") and all(part in said for part in texts[number])
