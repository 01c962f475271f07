"""The step-by-step view of a real run in a real browser: every number is that of NumPy with the files of the model."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from transformers import AutoModel, LlamaConfig, LlamaModel

import regard as rg
from regard.common.default_model import default_folder
from regard.common.files.tensors import mapped
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.viewer import embed, page
from regard.lens.viewer.routes import Responder
from tests.support.lanes import SWEEP, sweep

TEXT = "The animal didn't cross the street because it was too tired."
LAYER, HEAD, ROW = 3, 1, 10  # where the page opens
STORED = 2.0**-11  # the relative error of a stored vector
D = 32


def number(text) -> float:
    """A number as the page writes it."""
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
    base, _, power = text.replace("−", "-").partition("·10")
    return float(base) * 10.0 ** int(power.translate(powers) or 0)


NUMBER = r"−?[\d.]+(?:·10⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?"


def found(pattern, text) -> list[float]:
    """The numbers of the groups of a pattern, in which # is a number."""
    matched = re.search(pattern.replace("#", f"({NUMBER})"), " ".join(text.split()))
    assert matched, (pattern, text)
    return [number(part) for part in matched.groups()]


def shown(value, digits):
    """The largest error of a number that is written with so many digits."""
    return np.where(np.asarray(value) == 0, 0, 0.5 * 10.0 ** (np.floor(np.log10(np.abs(value) + 1e-300)) + 1 - digits))


@pytest.fixture(scope="module")
def run():
    return rg.look(text=TEXT)


@pytest.fixture(scope="module")
def exact(run):
    """x, q, k, v, the scores, the weights and the outputs of the row in float64, from the files of the model."""
    call, weights = run.calls[LAYER], mapped(default_folder() / "model.safetensors", "look")
    at = f"encoder.layer.{LAYER}.attention"
    x = call.x.astype(float)

    def part(name):
        w, b = weights[f"{at}.{name}.weight"].astype(float), weights[f"{at}.{name}.bias"].astype(float)
        return w, b

    q, k, v = (x @ w.T + b for w, b in map(part, ("self.query", "self.key", "self.value")))
    q, k, v = (each.reshape(len(x), 12, D).swapaxes(0, 1) for each in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(D)
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    heads = (p @ v).swapaxes(0, 1).reshape(len(x), -1)
    w, b = part("output.dense")
    return {
        "x": x,
        "q": q,
        "k": k,
        "v": v,
        "scores": scores,
        "p": p,
        "heads": heads,
        "y": heads @ w.T + b,
        "part": part,
    }


def scrolled(view):
    view.reach("walk")
    view.tab.evaluate("walk.set({ all: true, every: true })")
    return view


@pytest.fixture(scope="module")
def view(run, kept_open):
    return scrolled(kept_open(page(run)))


@pytest.fixture(scope="module")
def served(run, chromium):
    """The served page, of which the browser's requests are answered as by the server."""
    uri, desk = "http://lens.example/", Responder([run])

    def answer(route):
        question = route.request.url.removeprefix(uri).split("/")
        if question == [""]:
            route.fulfill(body=page(run, served=True), content_type="text/html")
        else:
            kind = "json" if question[0] == "walk" else "octet-stream"
            route.fulfill(body=desk.answer(*question), content_type=f"application/{kind}")

    tab = chromium.new_page(viewport={"width": 1280, "height": 900})
    tab.route("**/*", answer)
    tab.goto(uri)
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.evaluate("$('walk').scrollIntoView()")
    tab.wait_for_selector("#walk-steps li.now")
    tab.evaluate("walk.set({ all: true, every: true })")
    yield tab
    tab.close()


def text(tab, selector) -> str:
    return " ".join(tab.inner_text(selector).split())


def options(tab, selector) -> list[int]:
    return tab.evaluate("(id) => [...document.querySelector(id).options].map((each) => Number(each.value))", selector)


def pick(tab, selector, value):
    """Chooses in a list as a reader does, which leaves the focus on it."""
    tab.focus(selector)
    tab.select_option(selector, str(value))
    tab.wait_for_function("([id, value]) => document.querySelector(id)?.value === value", arg=[selector, str(value)])
    tab.wait_for_function("(id) => document.activeElement === document.querySelector(id)", arg=selector)


@pytest.mark.sweep
def test_the_page_opens_at_this_row(view):
    assert view.state("call", "head", "query") == (LAYER, HEAD, ROW)
    view.silent()


def test_numbers_that_arrive_leave_the_focus(view):
    """Numbers that arrive while a reader is at a list replace the list, not where the reader is."""
    view.tab.focus("#walk-k-key")
    view.tab.evaluate("walk.show()")

    assert view.tab.evaluate("document.activeElement.id") == "walk-k-key"


def test_formulas_name_the_biases_of_the_model(view):
    """MiniLM has biases everywhere."""
    formulas = [text(view.tab, f"#walk-head-{step} code") for step in ("q", "k", "v", "y")]
    assert formulas == ["q = x Wq + bq", "kj = xj Wk + bk", "vj = xj Wv + bv", "y = c Wo + bo"]


def test_a_model_without_biases_has_none_in_its_formulas(opened):
    """Llama: the matrices that are known have no bias; why q and k are not one product is said."""
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, vocab_size=50
    )
    run = rg.look(LlamaModel(config).eval(), inputs={"input_ids": torch.arange(7)[None]})
    seen = scrolled(opened(page(run)))
    formulas = [text(seen.tab, f"#walk-head-{step} code") for step in ("q", "k", "v", "y")]
    more = "alone: it may be rotated, normalized or scaled"
    assert formulas == [f"q, not x Wq {more}", f"kj, not xj Wk {more}", "vj = xj Wv", "y = c Wo"]
    for name in ("q", "k"):
        why = f"W{name} is not known: {name} is not the product of the layer’s input with one matrix"
        assert why in text(seen.tab, f"#walk-{name}")
    for step in "qkvy":
        said = text(seen.tab, f"#walk-head-{step}") + text(seen.tab, f"#walk-{step}")
        assert not re.search(r"\bb[qkvo]\b|bias", said), said
    (sum_of, model) = found(r"v\S+ = Σm x\S+ Wv\[m, \d+\] = #; in the model #\.", seen.text("#walk-v-result"))
    assert abs(sum_of - model) <= 1e-3 * abs(model) + 1e-9


def table(tab):
    rows = tab.evaluate(
        "[...document.querySelectorAll('.walk-table tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return np.array([[number(cell) for cell in row] for row in rows])


@pytest.mark.parametrize("key", [2, *sweep(0, 10, 15)])
def test_every_product_of_q_and_k(view, exact, key):
    """q_d, k_d, their product, the running sum, the sum of all, and the score, for the chosen key."""
    view.tab.evaluate("walk.set({ tabled: true })")
    pick(view.tab, "#walk-dot-key", key)
    q, k = exact["q"][HEAD, ROW], exact["k"][HEAD, key]
    d, *columns = table(view.tab).T
    assert d.tolist() == list(range(D))
    error = 2.01 * STORED * np.abs(q * k)
    for column, value, off in zip(
        columns,
        (q, k, q * k, np.cumsum(q * k)),
        (STORED * np.abs(q), STORED * np.abs(k), error, np.cumsum(error)),
        strict=True,
    ):
        assert (np.abs(column - value) <= off + shown(value, 4) + 1e-6).all()
    whole, again, scale, score = found(r"q·k = #\. Times the scale: # × # = #\.", view.text("#walk-dot-result"))
    assert whole == again and abs(scale - 1 / np.sqrt(D)) <= 5e-5
    assert abs(whole - q @ k) <= error.sum() + shown(q @ k, 4)
    assert abs(score - exact["scores"][HEAD, ROW, key]) <= error.sum() / np.sqrt(D) + shown(score, 4)
    assert view.tab.evaluate("new URLSearchParams(address().slice(1)).get('followed')") == str(key)


def readout(tab, step, place, nth=0) -> float:
    """A number of a strip, from the readout of the keyboard's cursor."""
    strip = f"#walk-{step} canvas >> nth={nth}"
    tab.focus(strip)
    tab.keyboard.press("Home")
    for _ in range(place):
        tab.keyboard.press("ArrowRight")
    said = tab.evaluate("document.activeElement.closest('.cells').nextSibling.textContent")
    return number(said.split("= ")[1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_one_element_of_q_k_and_v(view, exact, name):
    """The input, the column of the matrix, their products, and the value that results; of every element in the page."""
    w, b = exact["part"](f"self.{ {'q': 'query', 'k': 'key', 'v': 'value'}[name] }")
    w, b = w.reshape(12, D, -1)[HEAD], b.reshape(12, D)[HEAD]
    place = ROW if name == "q" else 2
    if name != "q":
        pick(view.tab, f"#walk-{name}-key", place)
    x = exact["x"][place]
    elements = options(view.tab, f"#walk-{name}-element")
    assert len(elements) >= 12 and len(set(elements)) == len(elements)
    for element in elements if SWEEP else [*elements[:-1:5], elements[-1]]:
        pick(view.tab, f"#walk-{name}-element", element)
        index = f"{element}" if name == "q" else rf"{place},{element}"
        formula = rf"{name}{index} = Σm x\S+ W{name}\[m, {element}\] \+ b{name}\[{element}\]"
        pattern = rf"{formula} = # ([+−]) # = #; in the model #\."
        said = " ".join(view.text(f"#walk-{name}-result").split())
        matched = re.search(pattern.replace("#", f"({NUMBER})"), said)
        assert matched, said
        total, sign, bias, result, model = matched.groups()
        whole = x @ w[element]
        assert abs(number(total) - whole) <= shown(whole, 6) + 1e-6
        assert (-1 if sign == "−" else 1) * number(bias) == pytest.approx(b[element], rel=1e-5)
        assert abs(number(result) - (whole + b[element])) <= shown(whole + b[element], 6) + 1e-6
        value = exact[name][HEAD, place, element]
        assert abs(number(model) - value) <= STORED * abs(value) + shown(value, 4) + 1e-6
        assert len(model.partition("·")[0].strip("−").replace(".", "").lstrip("0")) <= 4  # no digits that are not exact
    last = f"#walk-{name} canvas >> nth=1"
    view.tab.focus(last)
    for at in (0, 5):
        assert readout(view.tab, name, at, nth=1) == pytest.approx(x[at], rel=1e-5)
    view.tab.keyboard.press("ArrowDown")
    said = view.tab.evaluate("document.activeElement.closest('.cells').nextSibling.textContent")
    assert f"column {elements[-1]}, element 5 = " in said and number(said.split("= ")[1]) == pytest.approx(
        w[elements[-1], 5], rel=1e-5
    )


def test_both_forms_of_softmax_have_the_numbers_of_the_row(view, exact):
    """exp(s) / Σ exp(s) and exp(s − lse), of every key."""
    scores, p = exact["scores"][HEAD, ROW], exact["p"][HEAD, ROW]
    lines = view.tab.evaluate(
        "[...document.querySelectorAll('#walk-p li')].map((line) => [line.querySelector('.number').textContent,"
        " line.querySelector('.calculation').textContent, line.querySelector('data').textContent])"
    )
    assert sorted(int(place) for place, _, _ in lines) == list(range(16))
    for place, calculation, share in lines:
        above, below, score, lse = found(r"exp\(#\) / # = exp\(# − #\) =", calculation)
        s, whole = scores[int(place)], np.exp(scores).sum()
        assert above == score and abs(above - s) <= FINE_ERROR * 1.1 + shown(s, 4)
        assert abs(below - whole) <= shown(whole, 4) + 1e-4 and abs(lse - np.log(whole)) <= shown(np.log(whole), 4)
        assert abs(number(share.removesuffix(" %")) / 100 - p[int(place)]) <= FINE_ERROR + shown(p[int(place)], 3)
        assert abs(np.exp(above) / below - p[int(place)]) <= 2e-3 * p[int(place)]
    formula = text(view.tab, "#walk-head-p code")
    assert "pj = exp(sj) / (Σi exp(si)) = exp(sj − lse)" in formula
    (lse,) = found(r"lse = ln\(Σi exp\(si\)\) = #", formula)
    assert abs(lse - np.log(np.exp(scores).sum())) <= 1e-5


def test_positions_are_not_factors(view, exact):
    """A position is always named as one; the terms of the output are weights times values of named tokens."""
    for step in ("products", "scaled", "mask", "p"):
        for line in view.tab.evaluate(
            f"[...document.querySelectorAll('#walk-{step} .walk-keys li')].map((each) => each.innerText)"
        ):
            assert re.search(r"\(token \d+\)", " ".join(line.split())), line
    terms = re.findall(rf"({NUMBER}) × v\((\S+), token (\d+)\)", text(view.tab, "#walk-terms"))
    p = exact["p"][HEAD, ROW]
    assert [int(place) for _, _, place in terms] == np.argsort(-p)[:4].tolist()
    assert terms[0][1:] == ("animal", "2")
    for share, _, place in terms:
        assert abs(number(share) - p[int(place)]) <= shown(p[int(place)], 3) + FINE_ERROR


def test_the_outputs_of_all_heads_and_of_the_layer(view, exact):
    """This head's place among all heads; their product with W_o plus b_o; and what the model computed."""
    assert "elements 32 to 63 of 384" in view.text("#walk-heads-where")
    for place in (0, 33, 70):
        assert readout(view.tab, "heads", place) == pytest.approx(exact["heads"][ROW, place], rel=2e-5, abs=1e-6)
    whole, y, own = (np.array(view.tab.evaluate(f"Array.from(walk.matrices.{name})")) for name in ("whole", "y", "own"))
    np.testing.assert_allclose(whole, exact["y"][ROW], atol=1e-5)
    np.testing.assert_allclose(y, exact["y"][ROW], atol=1e-5)
    w, b = exact["part"]("output.dense")
    np.testing.assert_allclose(own, w[:, 32:64] @ exact["heads"][ROW, 32:64], atol=1e-5)
    apart, most = found(r"above is #; the largest absolute value of the output is #\.", view.text("#walk-y-difference"))
    assert apart == pytest.approx(np.abs(whole - y).max(), rel=0.05) and apart < 1e-5
    assert most == pytest.approx(np.abs(y).max(), rel=5e-3)
    for nth, values in ((0, whole), (1, y), (2, own)):
        assert readout(view.tab, "y", 7, nth) == pytest.approx(values[7], rel=1e-5)
    elements = options(view.tab, "#walk-o-element")
    assert len(elements) == 16
    for element in elements if SWEEP else elements[::5]:
        pick(view.tab, "#walk-o-element", element)
        (added,) = found(rf"Head 1 adds # to y{element}\.", view.text("#walk-o-own"))
        mine = w[element, 32:64] @ exact["heads"][ROW, 32:64]
        assert abs(added - mine) <= shown(mine, 6) + 1e-6
        (total, bias, result, model) = found(
            rf"y{element} = # [+−] # \(bo\[{element}\]\) = #; in the model #\.", view.text("#walk-o-result")
        )
        want = w[element] @ exact["heads"][ROW]
        assert abs(total - want) <= shown(want, 6) + 2e-6 and bias == pytest.approx(abs(b[element]), rel=1e-5)
        assert abs(result - (want + b[element])) <= shown(want, 6) + 2e-6 and abs(model - result) <= 1e-5
        parts = [readout(view.tab, "y", head, nth=4) for head in (0, 11)]
        heads = exact["heads"][ROW].reshape(12, D)
        want = [w[element, D * head : D * head + D] @ heads[head] for head in (0, 11)]
        np.testing.assert_allclose(parts, want, rtol=1e-5, atol=1e-6)


def test_the_output_of_the_layer_is_that_of_transformers(run):
    """BertSelfOutput.dense of the same model in transformers, in every layer and row."""
    import tokenizers

    model, seen = AutoModel.from_pretrained(default_folder()).eval(), []
    for layer in model.encoder.layer:
        layer.attention.output.dense.register_forward_hook(
            lambda module, args, out: seen.append(out[0].detach().numpy())
        )
    ids = tokenizers.Tokenizer.from_file(str(default_folder() / "tokenizer.json")).encode(TEXT).ids[:16]
    model(input_ids=torch.tensor([ids]))
    for call, y in zip(run.calls, seen, strict=True):
        np.testing.assert_allclose(call.projections.y, y, atol=2e-5)
        heads = call.out.swapaxes(0, 1).reshape(16, -1)
        np.testing.assert_allclose(call.projections.o.of(heads), y, atol=2e-5)


def test_the_footer_is_true_of_every_number(view, exact, run):
    """Weights with a relative error of at most 0.02 %, vectors of at most 0.05 %; in rows and heads of all layers."""
    promised = view.text("#exactness")
    weights, vectors = found(
        r"weights are stored with a relative error of at most # %, vectors with at most # %\.", promised
    )
    assert weights == 0.02 and vectors == 0.05, promised
    assert "Vectors are stored with a relative error of at most 0.05 %." in view.text("#walk-note")
    for at, call in enumerate(run.calls):
        for row in (0, 7, 15):
            for head in (0, 5, 11):
                shown = view.asks("walk", 0, at, head, row)
                exact_weights = call.weights(rows=row, heads=head)[0, 0]
                stored = [p is not None for p in shown["p"]]
                p = np.array([p or 0 for p in shown["p"]])
                assert (np.abs(p - exact_weights)[stored] <= weights / 100 * exact_weights[stored]).all()
                for name, value in (
                    ("x", call.x[row]),
                    ("q", call.q[head, row]),
                    ("k", call.k[head]),
                    ("v", call.v[head]),
                ):
                    apart = np.abs(np.array(shown[name]) - value)
                    assert (apart <= vectors / 100 * np.abs(value)).all(), (at, row, head, name)
                most = exact_weights @ np.abs(call.v[head])
                assert (
                    np.abs(np.array(shown["sum"]) - call.out[head, row]) <= (weights + vectors) / 100 * most + 1e-6
                ).all()
                scores = call.logits(rows=row, heads=head)[0, 0]
                products = 2.1 * STORED / np.sqrt(D) * np.abs(call.k[head]) @ np.abs(call.q[head, row])
                bound = np.where(p > 1e-6, np.minimum(FINE_ERROR, products), products)
                assert (np.abs(np.array(shown["scaled"]) - scores) <= 1.01 * bound + 1e-6).all()


def test_numbers_of_very_different_sizes_keep_the_promise(opened):
    """Vectors with very small or very large numbers, which half precision cannot hold."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 6, 8)).astype(np.float32)
    q[0, 1], k[0, 2], v[0, 3], v[0, 4, 0] = q[0, 1] * 1e-7, k[0, 2] * 1e-8, v[0, 3] * 1e9, 1e-12
    run = rg.look(q, k=k, v=v)
    seen = opened(page(run))
    for row in range(6):
        shown = seen.asks("walk", 0, 0, 0, row)
        for name, value in (("q", q[0, row]), ("k", k[0]), ("v", v[0])):
            assert (np.abs(np.array(shown[name]) - value) <= 5e-4 * np.abs(value)).all(), name


def test_other_heads_and_rows_of_the_page(run, kept_open):
    """What the page does not contain is named, with the way to see it; what holds for other rows is shown there."""
    seen = scrolled(kept_open(page(run)))
    seen.choose(head=4)
    seen.tab.wait_for_function(
        "() => walk.numbers && document.querySelector('#walk-q').textContent.includes('of head 1 only')"
    )
    assert "serve the run (regard look --serve) to see those of head 4" in seen.text("#walk-q")
    assert "elements 128 to 159 of 384" in seen.text("#walk-heads-where")
    assert seen.tab.locator("#walk-y canvas").count() == 2  # the output of the layer is that of all heads
    seen.choose(head=HEAD, query=5)
    said = "outputs of all heads for “it” (10) only"
    seen.tab.wait_for_function("(said) => $('walk-heads').innerText.includes(said)", arg=said)
    assert "serve the run" in seen.text("#walk-y")
    (model,) = found(r"in the model #\.", seen.text("#walk-q-result"))
    assert abs(model) > 0 and seen.tab.locator("#walk-q-element").count() == 1
    pick(seen.tab, "#walk-k-key", 7)
    assert "contains the input of animal (token 2) only" in text(seen.tab, "#walk-k")
    seen.choose(call=1)
    seen.tab.wait_for_function("() => document.querySelector('#walk-q').textContent.includes('of this layer and head')")
    seen.silent()


@pytest.mark.sweep
def test_a_served_page_has_every_element(served, run):
    """Any head, row, key and element: the values that result are those of the run."""
    for call, head, row in ((5, 11, 15), *([(0, 7, 3)] if SWEEP else [])):
        served.evaluate("(at) => choose(at).then(() => null)", {"call": call, "head": head, "query": row})
        served.wait_for_function(
            "([c, h, q]) => walk.matrices && walk.matrices.head === h && walk.matrices.row === q && state.call === c",
            arg=[call, head, row],
        )
        at, known = run.calls[call], run.calls[call].projections
        for name in "qkv":
            place = row
            if name != "q":
                place = 6
                pick(served, f"#walk-{name}-key", place)
            assert options(served, f"#walk-{name}-element") == list(range(D))
            for element in (0, 17, 31):
                pick(served, f"#walk-{name}-element", element)
                result, model = found(r"= #; in the model #\.", served.inner_text(f"#walk-{name}-result"))
                want = getattr(known, name).of(at.x[place])[head, element]
                assert abs(result - want) <= shown(want, 6) + 2e-6
                value = getattr(at, name)[head, place, element]
                assert abs(model - value) <= shown(value, 6) + 1e-9
        assert options(served, "#walk-o-element") == list(range(384))
        pick(served, "#walk-o-element", 200)
        result, model = found(r"= #; in the model #\.", served.inner_text("#walk-o-result"))
        assert (
            abs(result - known.y[row, 200]) <= 2e-6 + shown(result, 6)
            and abs(model - known.y[row, 200]) <= shown(model, 6) + 1e-9
        )
        assert f"elements {32 * head} to {32 * head + 31}" in served.inner_text("#walk-heads-where")


def test_a_page_without_q_and_k_has_no_matrices(run, monkeypatch):
    """Pages of long texts contain the weights alone."""
    monkeypatch.setattr(embed, "walked", lambda run: ())
    assert "matrices-0-" not in page(run)


def test_what_the_matrices_add_to_the_page(run):
    """At most 120 kB."""
    bare = dataclasses.replace(run, calls=tuple(dataclasses.replace(call, projections=None) for call in run.calls))
    assert 50_000 < len(page(run)) - len(page(bare)) <= 120_000


def test_the_page_of_the_shortest_text_is_small():
    """Scripts, styles and matrices, which are there for any text, take less than 450 kB."""
    assert 250_000 < len(page(rg.look(text="Hi")).encode()) <= 450_000


def test_a_folder_has_no_matrices(run, tmp_path, opened):
    """The page of a stored run says that they are not known, and has the other steps."""
    kept = rg.look(text=TEXT, into=tmp_path / "run")
    seen = scrolled(opened(page(kept)))
    assert "Wq is not known: the folder of a run does not store matrices." in text(seen.tab, "#walk-q")
    assert text(seen.tab, "#walk-head-q code") == "q" and seen.tab.locator("#walk-dot-result").count() == 1
    described = json.loads(seen.tab.evaluate("JSON.stringify(callNow().matrices)"))
    assert described == {"known": [], "biased": [], "missing": {}}


def test_runs_without_matrices_say_why(opened):
    """Of arrays, there is no model and no folder; of a model, values were not asked for."""
    q = np.ones((1, 3, 4), np.float32)
    for made, why in (
        (rg.look(q, k=q), "this run was not recorded from a model"),
        (rg.look(text="Hi", values=False), "matrices are recorded with values=True"),
    ):
        assert f"Wq is not known: {why}." in text(scrolled(opened(page(made))).tab, "#walk-q")


@pytest.mark.parametrize("width", [360, 900])
def test_nothing_is_cut_off(run, opened, width):
    seen = scrolled(opened(page(run), viewport={"width": width, "height": 800}))
    seen.tab.evaluate("walk.set({ tabled: true })")
    assert not [node for node in seen.cut_off() if "walk" in node]
