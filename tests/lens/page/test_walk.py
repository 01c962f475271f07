"""The walk, the pair in every head and the scrubber in a real browser: every number is that of plain NumPy."""

import dataclasses
import json
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
from regard.lens.viewer.routes import Responder
from tests.support.browser import example, fault, near

HALF = 2.0**-11  # of a number kept in 16 bits
TOKENS = ("[CLS]", " The", " animal", " did", " not", " cross", " the", " street", ".", "[SEP]")
N, HEADS, GROUPS, D, E = len(TOKENS), 4, 2, 8, 6
ROW, HEAD = 7, 3
CAP, SCALE = 3.0, 0.4


def layer():
    """A call with every rule: shared keys, scale, softcap, causal mask, sinks; with x, v and out."""
    random = np.random.default_rng(7)
    draw = lambda *shape: random.standard_normal(shape, dtype=np.float32)  # noqa: E731
    q, k, v, x = 2 * draw(HEADS, N, D), 2 * draw(GROUPS, N, D), draw(GROUPS, N, E), draw(N, 40)
    problem = Problem.of(
        q[None], k[None], None, mask=rg.causal(), score=rg.softcap(CAP), scale=SCALE, sinks=draw(HEADS, 1)
    )
    rules = {"mask": problem.mask, "score": problem.score, "scale": problem.scale, "start": 0, "sinks": problem.sinks}
    figures = measured(q, k, np.array([token[0] == "[" for token in TOKENS]), **rules)
    out = rg.attention(q, k, v, mask=rg.causal(), score=rg.softcap(CAP), scale=SCALE, sinks=problem.sinks)
    return Call("layers.0.attention", 0, "text", "text", q=q, k=k, **rules, **figures, v=v, x=x, out=out)


def by_hand(call):
    """The steps of the row in NumPy, over all keys."""
    q, k, v = call.q[HEAD, ROW].astype(float), call.k[HEAD // 2].astype(float), call.v[HEAD // 2].astype(float)
    products = k @ q
    scaled = SCALE * products
    scores = CAP * np.tanh(scaled / CAP)
    allowed = np.arange(N) <= ROW
    weights = np.where(allowed, np.exp(scores), 0)
    p = weights / (weights.sum() + np.exp(call.sinks[HEAD].astype(float)).sum())
    return {
        "products": products,
        "scaled": scaled,
        "scores": scores,
        "mask": allowed.astype(float),
        "p": p,
        "sum": p @ v,
    }


def bounds(call):
    """How far each step may be off where q, k and v are kept in 16 bits and the weights as their codes."""
    q, k, v = np.abs(call.q[HEAD, ROW]), np.abs(call.k[HEAD // 2]), np.abs(call.v[HEAD // 2])
    products = (2 * HALF + HALF**2) * (k @ q) + 1e-6
    hand = by_hand(call)
    return {
        "products": products,
        "scaled": SCALE * products,
        "scores": np.full(N, FINE_ERROR + 1e-5),
        "mask": np.zeros(N),
        "p": FINE_ERROR * hand["p"] + 1e-9,
        "sum": (FINE_ERROR + 1.001 * HALF) * (hand["p"] @ v),
    }


@pytest.fixture(scope="module")
def walked(kept_open):
    """A page of one call with every rule, opened at its row, and that call."""
    call = layer()
    run = Run("toy", "".join(TOKENS), {"text": rg.lens.Axis.of(TOKENS, [token[0] == "[" for token in TOKENS])}, (call,))
    opened = kept_open(page(run), f"#head={HEAD}&query={ROW}")
    opened.reach("walk")
    return opened, call, run


def column(opened, step) -> dict[int, float | None]:
    """The results of a step by key, as the page shows them; None where it has none."""
    found = opened.tab.evaluate(
        "(id) => [...document.querySelectorAll(`#walk-${id} .walk-keys li`)].map((line) => "
        "[Number(line.querySelector('.number').textContent),"
        "  line.querySelector('data').getAttribute('value')])",
        step,
    )
    return {j: None if value == "" else float(value) for j, value in found}


def numbers(opened, step) -> list[float]:
    """The numbers of a vector, read by the keyboard's cursor from its readout."""
    found = []
    opened.tab.focus(f"#walk-{step} canvas")
    opened.press("Home")
    for _ in range(opened.tab.evaluate(f"walk.numbers['{step}'].length")):
        found.append(float(opened.text(f"#walk-{step} .cells-readout").split("= ")[1].replace("−", "-")))
        opened.tab.keyboard.press("ArrowRight")
    return found


def test_every_step_has_the_numbers_of_numpy(walked):
    """q·k, scaled, capped, masked, shared and summed up, as the formulas say; vectors are those of the call."""
    opened, call, _ = walked
    opened.tab.evaluate("walk.set({ all: true, every: true })")
    hand, error = by_hand(call), bounds(call)
    for step in ("products", "scaled", "scores", "mask", "p"):
        shown = column(opened, step)
        assert sorted(shown) == list(range(N))
        for j, value in shown.items():
            if step == "scores" and j > ROW:
                assert value is None  # behind the mask, a rule's result is not in a page
            else:
                assert abs(value - hand[step][j]) <= error[step][j] + 1e-4 * abs(hand[step][j]) * (step == "scores"), (
                    step,
                    j,
                )
    for step, exact, off in (
        ("q", call.q[HEAD, ROW], HALF * np.abs(call.q[HEAD, ROW])),
        ("sum", hand["sum"], error["sum"]),
        ("out", call.out[HEAD, ROW], HALF * np.abs(call.out[HEAD, ROW])),
    ):
        assert (np.abs(np.array(numbers(opened, step)) - exact) <= 1.001 * off + 5e-5 * np.abs(exact) + 1e-7).all(), (
            step
        )
    for step, exact in (("k", call.k[HEAD // 2]), ("v", call.v[HEAD // 2]), ("x", call.x[ROW])):
        kept = np.array(opened.tab.evaluate(f"walk.numbers.{step}"))
        assert (np.abs(kept - exact) <= 1.001 * HALF * np.abs(exact) + 1e-7).all(), step
    opened.tab.evaluate("walk.set({ all: false, every: false })")


def test_each_step_has_its_formula_shape_and_law(walked):
    """The rules are those of the call, with its own numbers; laws are named where one speaks of the step."""
    opened, call, _ = walked
    text = {
        step: " ".join(opened.text(f"#walk-head-{step}").split())
        for step in ("q", "k", "v", "scaled", "scores", "mask", "p", "sum")
    }
    assert (
        "D = 8" in text["q"] and f"{N} × {D}" in text["k"] and f"{N} × {E}" in text["v"] and f"E = {E}" in text["sum"]
    )
    assert "scale = 0.4" in text["scaled"] and "law 1" in text["scaled"]
    assert str(call.score) in text["scores"] and str(call.mask) in text["mask"] and "laws 2, 3 and 6" in text["mask"]
    assert f"{call.lse[HEAD, ROW]:.4f}"[:5] in text["p"] and "sink" in text["p"]


def test_sinks_and_shared_heads_are_told(walked):
    """What the sinks take is 1 − Σ p, and heads that share keys are named."""
    opened, call, _ = walked
    opened.tab.evaluate("walk.set({ all: true })")
    taken = 1 - by_hand(call)["p"].sum()
    assert f"take {float(f'{100 * taken:.3g}'):g}"[:9] in opened.text("#walk-p")
    assert "Heads 2 to 3 share" in opened.text("#walk-k")
    opened.tab.evaluate("walk.set({ all: false })")


def test_one_step_at_a_time_by_keyboard(walked):
    """Arrows open the next step and close the one before; Home and End are the ends."""
    opened, _, _ = walked
    opened.click("#walk-head-x")
    opened.tab.focus("#walk-head-x")
    for key, step in (
        ("ArrowDown", "q"),
        ("ArrowDown", "k"),
        ("ArrowUp", "q"),
        ("End", "y"),
        ("ArrowDown", "y"),
        ("Home", "x"),
    ):
        opened.press(key)
        expanded = opened.tab.evaluate(
            "[...document.querySelectorAll('.walk-head[aria-expanded=true]')].map((head) => head.id)"
        )
        assert expanded == [f"walk-head-{step}"]
        assert opened.tab.evaluate("document.activeElement.id") == f"walk-head-{step}"
    assert opened.state("query") == ROW


@pytest.mark.sweep
def test_a_served_walk_is_the_same(walked, chromium):
    """The numbers that a server sends are shown in the same places, and are within rounding of those of the page."""
    opened, call, run = walked
    uri, desk = "http://lens.example/", Responder([run])

    def answer(route):
        question = route.request.url.removeprefix(uri).split("/")
        body = page(run, served=True) if question == [""] else desk.answer(*question)
        kind = (
            "text/html"
            if question == [""]
            else "application/json"
            if question[0] == "walk"
            else "application/octet-stream"
        )
        route.fulfill(body=body, content_type=kind)

    tab = chromium.new_page()
    tab.route("**/*", answer)
    tab.goto(f"{uri}#head={HEAD}&query={ROW}")
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.evaluate("$('walk').scrollIntoView()")
    tab.wait_for_selector("#walk-steps li.now")
    found = tab.evaluate("walk.numbers")
    hand = by_hand(call)
    for name in ("scaled", "scores", "p", "sum"):
        np.testing.assert_allclose(found[name], hand[name], rtol=5e-6, atol=1e-7)  # six digits
    assert found["keys"] == list(range(N)) and set(found) >= set(opened.tab.evaluate("Object.keys(walk.numbers)")) - {
        "exact",
        "same",
    }
    tab.close()


def test_what_is_not_there_is_said(opened):
    """Weights alone have no walk to them; v, x and out that were not kept say how to have them; an empty row is no
    fault.
    """
    run, exact = example(6, 1, 1)
    none = np.zeros(6, bool)
    given = exact[0].astype(np.float32)
    call = Call("given", 0, "text", "text", given=given, **of_weights(given, none, mask=None, start=0))
    first = opened(page(dataclasses.replace(run, calls=(call,)), start={}))
    first.reach("walk")
    first.tab.evaluate("walk.set({ all: true })")
    assert all(
        "recorded as weights alone" in first.text(f"#walk-{step}")
        for step in ("q", "k", "products", "scaled", "scores")
    )
    near(column(first, "p"), exact[0][0, 0], FINE_ERROR)
    bare = dataclasses.replace(run.calls[0], v=None, x=None, out=None)
    second = opened(page(dataclasses.replace(run, calls=(bare,))))
    second.reach("walk")
    second.tab.evaluate("walk.set({ all: true })")
    assert all("values=True" in second.text(f"#walk-{step}") for step in ("x", "v", "sum", "out"))
    masked, _ = example(6, 1, 1, mask=rg.key < rg.query)
    third = opened(page(masked, start={}))
    third.reach("walk")
    third.tab.evaluate("walk.set({ all: true })")
    assert "This row is fully masked: its output is 0 (law 5)." in third.text("#walk-p")


def test_what_a_model_gives_to_rows_that_may_attend_nothing_is_told(opened):
    """Where that is something else than 0, the walk says so, shows the model's own output, and does not take one for
    the other.
    """
    masked, _ = example(6, 1, 1, mask=rg.key < rg.query)
    out = masked.calls[0].out.copy()
    out[0, 0] = masked.calls[0].v[0].mean(0)
    notes = {"compared": "all rows", "difference": 1e-7, "empty": "an average of values"}
    seen = opened(page(fault(masked, out=out, notes=notes), start={}))
    seen.reach("walk")
    seen.tab.evaluate("walk.set({ all: true })")
    assert "For fully masked rows, the output of the model itself is an average of values." in seen.text("#walk-p")
    np.testing.assert_allclose(seen.tab.evaluate("walk.numbers.out"), out[0, 0], rtol=2e-3)
    assert "equal to the output" not in seen.text("#walk-out")
    assert "The largest difference" in seen.text("#walk-out")


def test_what_is_not_finite_is_shown(opened):
    """NaN and infinity stand in the vectors, the scores and the shares, and the page says how many of the shares are no
    numbers.
    """

    def poison(q, k):
        q[0, 4, 0], k[0, 2] = np.inf, np.nan

    run, exact = example(6, 1, 1, mask=rg.causal(), poison=poison)
    seen = opened(page(run), "#query=4")
    seen.reach("walk")
    seen.tab.evaluate("walk.set({ all: true })")
    assert seen.tab.evaluate("[walk.numbers.q[0] === Infinity, walk.numbers.k[2].every(Number.isNaN)]") == [True, True]
    lines = seen.tab.evaluate(
        "[...document.querySelectorAll('#walk-p li')].map((line) => line.innerText.split('\\n').join(' '))"
    )
    bad = int(np.isnan(exact[0][0, 4]).sum())
    assert sum("not a number" in line for line in lines) == bad > 0
    assert f"{bad} of the 6 weights here are not numbers" in seen.text("#walk-p")
    assert f"{bad} weight{'s are' if bad > 1 else ' is'} not between 0 and 1." in seen.text("#strongest-note")


@pytest.fixture(scope="module")
def paired(kept_open):
    """A page of three causal layers of four heads, scrolled to the pair, and the exact weights."""
    run, exact = example(10, 3, 4, mask=rg.causal())
    opened = kept_open(page(run), "#query=8&key=2")
    opened.tab.evaluate("$('pair').scrollIntoView()")
    opened.tab.wait_for_selector("#pair-list .entry")
    return opened, np.stack(exact)


def heads(opened) -> dict[tuple[int, int], float]:
    """The weights in the list of heads, in its order."""
    return {
        (int(row.get_attribute("data-call")), int(row.get_attribute("data-head"))): float(
            row.query_selector("data").get_attribute("value")
        )
        for row in opened.tab.query_selector_all("#pair-list .entry")
    }


def test_a_pair_in_every_head(paired):
    """p_ij of every layer and head, strongest first; the cells have the colours of these weights."""
    opened, exact = paired
    opened.choose(call=0, head=0, query=8, key=2)
    shown = heads(opened)
    falling = sorted(((call, head) for call in range(3) for head in range(4)), key=lambda at: -exact[at][8, 2])
    assert list(shown) == falling
    near(shown, {at: exact[at][8, 2] for at in falling}, FINE_ERROR)
    size = opened.tab.evaluate("pair.cell")
    for call, head in ((0, 1), (2, 3)):
        want = opened.tab.evaluate("(p) => [...rgb(step(p, state.scale), state.scale)]", float(exact[call, head, 8, 2]))
        x, y = (size["left"] + head * size["width"] + 3, size["top"] + call * size["height"] + 3)
        assert np.abs(np.array(opened.pixel("#pair-canvas", int(x), int(y))[:3]) - want).max() <= 4


def test_large_weights_of_a_pair_are_written_as_shares(opened):
    """A cell of 99.6 % says 99.6, not 1.0e+2; smaller ones have two digits."""
    run, _ = example(2, 1, 4)
    given = np.array([[[1 - p, p], [0.5, 0.5]] for p in (0.9961, 0.99961, 0.9449, 0.0123)], np.float32)
    call = Call("given", 0, "text", "text", given=given, **of_weights(given, np.zeros(2, bool), mask=None, start=0))
    seen = opened(page(dataclasses.replace(run, calls=(call,)), start={}), "#query=0&key=1")
    seen.tab.evaluate("$('pair').scrollIntoView()")
    seen.tab.wait_for_selector("#pair-list .entry")
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


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width", [390, 1280])
def test_the_title_of_a_pair_says_the_unit_of_its_numbers(width, opened):
    """Narrow cells have no numbers, so there is no unit."""
    run, _ = example(layers=1, heads=12, mask=rg.causal())
    seen = opened(page(run), "#query=5", viewport={"width": width, "height": 800})
    seen.tab.evaluate("$('pair').scrollIntoView()")
    seen.tab.wait_for_selector("#pair-list .entry")
    seen.settled()
    numbers = seen.tab.evaluate("pair.cell.width >= NUMBERED")
    assert numbers == (width == 1280)
    assert seen.text(".pair-left h3").endswith(", in %" if numbers else "heads from left to right")


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
    near(
        heads(opened),
        {(call, head): exact[call, head, 7, strongest] for call in range(3) for head in range(4)},
        FINE_ERROR,
    )
    opened.choose(query=3, key=9)
    assert heads(opened) == {} and "No head has weight on this pair." in opened.text("#pair-note")


def test_what_was_written(opened):
    """Each step shows the row that wrote, its candidates with their probabilities, and which of them was taken."""
    run, _ = example(8, 1, 1, mask=rg.causal())
    candidates = [((" word5", 0.5), (" other", 0.25)), ((" other", 0.75), (" word6", 0.125)), ((" other", 1.0),)]
    steps = tuple(Step(5 + at, each) for at, each in enumerate(candidates))
    seen = opened(page(dataclasses.replace(run, steps=steps)))

    def shown():
        text = seen.tab.evaluate(
            "JSON.stringify([...document.querySelectorAll('#steps-candidates li')].map((line) => "
            "[line.querySelector('bdi').textContent,"
            " Number(line.querySelector('data').value), line.className]))"
        )
        return json.loads(text)

    seen.tab.focus("#steps-slider")
    seen.press("Home")
    seen.press(">", "<")
    assert seen.state("step", "query") == (0, 4)
    assert shown() == [["word5", 0.5, "taken"], ["other", 0.25, ""]] and "the likeliest" in seen.text("#steps-said")
    assert "“word5” (token 5) was predicted from “word4” (token 4)" in seen.text("#steps-said")
    seen.press("ArrowRight")
    assert seen.state("step", "query") == (1, 5) and "candidate 2" in seen.text("#steps-said")
    assert shown() == [["other", 0.75, ""], ["word6", 0.125, "taken"]]
    later = seen.tab.evaluate(
        "[...document.querySelectorAll('#words .later')].map((node) => Number(node.dataset.token))"
    )
    assert later == [6, 7]
    seen.click("#steps-on")
    assert "not among the stored candidates" in seen.text("#steps-said")
    seen.click("#steps-play")
    seen.tab.wait_for_selector("#steps-play[aria-label=play]")  # it begins anew and ends by itself
    assert seen.state("step") == 2
    seen.click("#steps-whole")
    assert seen.state("step") is None and not seen.tab.query_selector("#words .later")


def test_nothing_is_cut_off(walked):
    """At every width, with every step open, nothing reaches beyond the window."""
    opened, _, _ = walked
    opened.tab.evaluate("walk.set({ all: true, every: true })")
    opened.fits(390, 1024, 1280, 1900)


def test_the_laws_are_explained_on_the_spot(walked):
    """Each law that a step names is beside it, in the words of the documentation."""
    opened, _, _ = walked
    laws = (Path(__file__).parents[3] / "docs/reference/laws.md").read_text(encoding="utf-8")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", lambda found: found[1] or "", " ".join(laws.split()))
    texts = opened.tab.evaluate("LAWS_OF_STEPS")
    assert opened.tab.evaluate("[...new Set(WALK.flatMap(({ laws }) => laws))].sort((a, b) => a - b)") == sorted(
        map(int, texts)
    )
    for number, (name, text) in texts.items():
        assert f"## {number}. {name} " in plain and text in plain, number
    opened.tab.evaluate("walk.set({ all: true })")
    for step, numbers in (("scaled", [1]), ("mask", [2, 3, 6]), ("p", [5, 7, 8, 12])):
        shown = opened.tab.locator(f"#walk-{step} .walk-laws")
        assert not shown.locator("p").first.is_visible()
        shown.locator("summary").click()
        assert [each.split(":")[0] for each in shown.locator("p").all_inner_texts()] == [f"Law {n}" for n in numbers]
        assert all(part in shown.inner_text() for n in numbers for part in texts[str(n)])
        assert texts[str(numbers[0])][1] in opened.tab.get_attribute(f"#walk-head-{step} .walk-law", "title")
    opened.tab.evaluate("walk.set({ all: false })")
