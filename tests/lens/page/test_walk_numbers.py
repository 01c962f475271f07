"""The step-by-step view of a real run in a real browser: every number is that of NumPy with the files of the model."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaModel

import regard as rg
from regard.common.default_model import default_folder
from regard.common.files.tensors import mapped
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.viewer import embed, page
from regard.lens.viewer.server import Server
from tests.lens.page.test_walk import HALF, all_steps
from tests.support.browser import Opened
from tests.support.engines import normal

TEXT = "The animal didn't cross the street because it was too tired."
LAYER, HEAD, ROW = 3, 1, 10  # where the page opens
D = 32


def number(text):
    """A number as the page writes it."""
    powers = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
    base, _, power = text.replace("−", "-").partition("·10")
    return float(base) * 10.0 ** int(power.translate(powers) or 0)


NUMBER = r"−?[\d.]+(?:·10⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?"


def found(pattern, text):
    """The numbers of the groups of a pattern, in which # is a number."""
    matched = re.search(pattern.replace("#", f"({NUMBER})"), " ".join(text.split()))
    assert matched, (pattern, text)
    return [number(part) for part in matched.groups()]


@pytest.fixture(scope="module")
def run():
    return rg.look(text=TEXT)


@pytest.fixture(scope="module")
def exact(run):
    """x, q, k, v, the scores, the weights and the outputs of the row in float64, from the files of the model."""
    call, weights = run.calls[LAYER], mapped(default_folder() / "model.safetensors", "look")
    x = call.x.astype(float)

    def part(name):
        return [weights[f"encoder.layer.{LAYER}.attention.{name}.{kind}"].astype(float) for kind in ("weight", "bias")]

    q, k, v = (x @ w.T + b for w, b in map(part, ("self.query", "self.key", "self.value")))
    q, k, v = (each.reshape(len(x), 12, D).swapaxes(0, 1) for each in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(D)
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    heads = (p @ v).swapaxes(0, 1).reshape(len(x), -1)
    w, b = part("output.dense")
    own = {"q": q[HEAD], "k": k[HEAD], "v": v[HEAD], "scores": scores[HEAD, ROW], "p": p[HEAD, ROW]}
    return own | {"x": x, "heads": heads[ROW], "y": heads[ROW] @ w.T + b, "part": part}


@pytest.fixture(scope="module")
def view(run, kept_open):
    return all_steps(kept_open(run))


def text(tab, selector):
    return " ".join(tab.inner_text(selector).split())


def options(tab, selector):
    return tab.evaluate("(id) => [...document.querySelector(id).options].map((each) => Number(each.value))", selector)


def pick(tab, selector, value):
    """Chooses in a list as a reader does, which leaves the focus on it."""
    tab.focus(selector)
    tab.select_option(selector, str(value))
    tab.wait_for_function("([id, value]) => document.querySelector(id)?.value === value", arg=[selector, str(value)])
    tab.wait_for_function("(id) => document.activeElement === document.querySelector(id)", arg=selector)


def formulas(view):
    return [text(view.tab, f"#walk-head-{step} code") for step in "qkvy"]


def test_a_model_without_biases_has_none_in_its_formulas(view, opened):
    """Llama: the matrices that are known have no bias; why q and k are not one product is said. MiniLM has biases
    everywhere.
    """
    assert formulas(view) == ["q = x Wq + bq", "kj = xj Wk + bk", "vj = xj Wv + bv", "y = c Wo + bo"]
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48, vocab_size=50
    )
    seen = all_steps(opened(rg.look(LlamaModel(config).eval(), inputs={"input_ids": torch.arange(7)[None]})))
    more = "alone: it may be rotated, normalized or scaled"
    assert formulas(seen) == [f"q, not x Wq {more}", f"kj, not xj Wk {more}", "vj = xj Wv", "y = c Wo"]
    for name in "qk":
        why = f"W{name} is not known: {name} is not the product of the layer’s input with one matrix"
        assert why in text(seen.tab, f"#walk-{name}")
    assert not re.search(r"\bb[qkvo]\b|bias", "".join(text(seen.tab, f"#walk-{step}") for step in "qkvy"))
    (sum_of, model) = found(r"v\S+ = Σm x\S+ Wv\[m, \d+\] = #; in the model #\.", seen.text("#walk-v-result"))
    assert sum_of == pytest.approx(model, rel=1e-3, abs=1e-9)


def test_every_product_of_q_and_k(view, exact):
    """q_d, k_d, their product, the running sum, the sum of all, and the score, for the chosen key."""
    pick(view.tab, "#walk-dot-key", 2)
    q, k = exact["q"][ROW], exact["k"][2]
    products, error = q * k, 2.01 * HALF * np.abs(q * k)
    wanted = np.array([q, k, products, np.cumsum(products)])
    off = np.array([HALF * np.abs(q), HALF * np.abs(k), error, np.cumsum(error)])
    for d in (0, 13, D - 1):
        for line in range(4):
            shown = readout(view.tab, "products", d, down=line)
            assert abs(shown - wanted[line, d]) <= off[line, d] + 5e-4 * abs(wanted[line, d]) + 1e-6
    whole, again, scale, score = found(r"q·k = #\. Times the scale: # × # = #\.", view.text("#walk-dot-result"))
    assert whole == again == pytest.approx(q @ k, rel=5e-4, abs=error.sum())
    assert scale == pytest.approx(1 / np.sqrt(D), abs=5e-5)
    assert score == pytest.approx(exact["scores"][2], rel=5e-4, abs=error.sum() / np.sqrt(D))
    assert "followed=2" in view.address()


def titled(tab, step, place, nth=0, down=0):
    """What a number is, and its digits: of some vectors, of a line of them."""
    cell = tab.locator(f"#walk-{step} .cells").nth(nth).locator("> div").nth(down).locator("data").nth(place)
    return cell.get_attribute("title")


def readout(*place, **more):
    return number(titled(*place, **more).split("= ")[1])


@pytest.mark.parametrize("name, part", [("q", "query"), ("k", "key"), ("v", "value")])
def test_one_element_of_q_k_and_v(view, exact, name, part):
    """The input, the column of the matrix, their products, and the value that results; of every element in the page."""
    w, b = (each[D * HEAD : D * HEAD + D] for each in exact["part"](f"self.{part}"))
    place = ROW if name == "q" else 2
    if name != "q":
        pick(view.tab, f"#walk-{name}-key", place)
    x = exact["x"][place]
    elements = options(view.tab, f"#walk-{name}-element")
    assert len(elements) >= 4 and len(set(elements)) == len(elements)
    for element in elements:
        pick(view.tab, f"#walk-{name}-element", element)
        index = f"{element}" if name == "q" else rf"{place},{element}"
        formula = rf"{name}{index} = Σm x\S+ W{name}\[m, {element}\] \+ b{name}\[{element}\]"
        sign = "−" if b[element] < 0 else r"\+"
        total, bias, result, model = found(
            rf"{formula} = # {sign} # = #; in the model #\.", view.text(f"#walk-{name}-result")
        )
        whole = x @ w[element]
        assert (total, bias, result) == pytest.approx((whole, abs(b[element]), whole + b[element]), rel=1e-5, abs=1e-6)
        assert model == float(f"{model:.4g}") == pytest.approx(exact[name][place, element], rel=1e-3, abs=1e-6)
    assert readout(view.tab, name, 5, nth=1) == pytest.approx(x[5], rel=1e-5)
    said = titled(view.tab, name, 5, nth=1, down=1)
    assert f"column {element}, element 5 = " in said
    assert number(said.split("= ")[1]) == pytest.approx(w[element, 5], rel=1e-5)


def test_both_forms_of_softmax_have_the_numbers_of_the_row(view, exact):
    """exp(s) / Σ exp(s) and exp(s − lse), of every key."""
    scores, p = exact["scores"], exact["p"]
    whole = np.exp(scores).sum()
    lines = view.each(
        "#walk-p li", "['.number', '.calculation', 'data'].map((part) => node.querySelector(part).textContent)"
    )
    assert sorted(int(place) for place, _, _ in lines) == list(range(16))
    for place, calculation, share in lines:
        above, below, score, lse = found(r"exp\(#\) / # = exp\(# − #\) =", calculation)
        assert above == score == pytest.approx(scores[int(place)], rel=6e-4, abs=1.1 * FINE_ERROR)
        assert (below, lse) == pytest.approx((whole, np.log(whole)), rel=6e-4)
        assert number(share.removesuffix(" %")) / 100 == pytest.approx(p[int(place)], rel=6e-3)
    formula = text(view.tab, "#walk-head-p code")
    assert "pj = exp(sj) / (Σi exp(si)) = exp(sj − lse)" in formula
    assert found(r"lse = ln\(Σi exp\(si\)\) = #", formula) == pytest.approx([np.log(whole)], abs=1e-5)


def test_positions_are_not_factors(view, exact):
    """The terms of the output are weights times values of named tokens."""
    terms = re.findall(rf"({NUMBER}) × v\((\S+), token (\d+)\)", text(view.tab, "#walk-terms"))
    largest = np.argsort(-exact["p"])[:4]
    assert [int(place) for _, _, place in terms] == largest.tolist() and terms[0][1] == "animal"
    assert [number(share) for share, _, _ in terms] == pytest.approx(exact["p"][largest], rel=6e-3)


def test_the_outputs_of_all_heads_and_of_the_layer(view, exact):
    """This head's place among all heads; their product with W_o plus b_o; and what the model computed."""
    assert "elements 32 to 63 of 384" in view.text("#walk-heads-where")
    (w, b), heads = exact["part"]("output.dense"), exact["heads"]
    assert readout(view.tab, "heads", 33) == pytest.approx(heads[33], rel=2e-5)
    whole, y, own = np.array(view.tab.evaluate("['whole', 'y', 'own'].map((each) => [...walk.matrices[each]])"))
    np.testing.assert_allclose([whole, y, own], [exact["y"], exact["y"], w[:, 32:64] @ heads[32:64]], atol=1e-5)
    shown = [readout(view.tab, "y", 7, nth) for nth in range(3)]
    assert shown == pytest.approx([whole[7], y[7], own[7]], rel=1e-5)
    apart, most = found(r"above is #; the largest absolute value of the output is #\.", view.text("#walk-y-difference"))
    assert (apart, most) == pytest.approx((np.abs(whole - y).max(), np.abs(y).max()), rel=0.05)
    elements = options(view.tab, "#walk-o-element")
    assert len(elements) == 16
    for element in elements[::8]:
        pick(view.tab, "#walk-o-element", element)
        parts = (w[element] * heads).reshape(12, D).sum(1)
        added = found(rf"Head 1 adds # to y{element}\.", view.text("#walk-o-own"))
        total, bias, result, model = found(
            rf"y{element} = # [+−] # \(bo\[{element}\]\) = #; in the model #\.", view.text("#walk-o-result")
        )
        wanted = parts[HEAD], parts.sum(), abs(b[element]), parts.sum() + b[element]
        assert (*added, total, bias, result) == pytest.approx(wanted, rel=1e-5, abs=2e-6)
        assert model == pytest.approx(result, abs=1e-5)
    assert readout(view.tab, "y", 11, nth=4) == pytest.approx(parts[11], rel=1e-5, abs=1e-6)


def test_numbers_of_very_different_sizes_keep_the_promise(opened):
    """Vectors with very small or very large numbers, which half precision cannot hold."""
    q, k, v = normal(3, 1, 6, 8)
    q[0, 1], k[0, 2], v[0, 3], v[0, 4, 0] = q[0, 1] * 1e-7, k[0, 2] * 1e-8, v[0, 3] * 1e9, 1e-12
    view = opened(rg.look(q, k=k, v=v))
    promise = "weight is stored with a relative error of at most 0.03 %, vectors with at most 0.05 %."
    assert promise in text(view.tab, "#exactness")
    shown = view.asks("walk", 0, 0, 0, 1)
    for name, value in {"q": q[0, 1], "k": k[0], "v": v[0]}.items():
        np.testing.assert_allclose(shown[name], value, rtol=5e-4)


def test_no_result_is_cut_on_a_phone(opened):
    """The calculation of a weight, which is long, leaves room for the weight and the token."""
    view = all_steps(opened(rg.look(*normal(1, 1, 6, 8), k=normal(1, 6, 8), tokens=["animal"] * 6)))
    view.tab.set_viewport_size({"width": 360, "height": 900})
    cut = "(all) => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
    assert view.tab.locator(".walk-keys :is(data, bdi)").evaluate_all(cut) == []


def test_other_heads_and_rows_of_the_page(run, kept_open):
    """What the page does not contain is named, with the way to see it; what holds for other rows is shown there."""
    seen = all_steps(kept_open(run))
    for change, part, words in (
        ({"head": 4}, "#walk-q", "serve the run (regard look --serve) to see those of head 4"),
        ({"head": 4}, "#walk-heads-where", "elements 128 to 159 of 384"),
        ({"head": HEAD, "query": 5}, "#walk-heads", "outputs of all heads for “it” (10) only"),
        ({"call": 1}, "#walk-note", "open it at this layer (regard look --layer)"),
    ):
        seen.choose(**change)
        seen.tab.locator(part, has_text=words).wait_for()


def test_a_served_page_has_every_element(run, chromium):
    """Any head, row, key and element: the values that result are those of the run."""
    call, head, row, key = run.calls[5], 11, 15, 6
    with Server(run) as server:
        seen = all_steps(Opened(chromium, server.address, f"#call=5&head={head}&query={row}"))
        seen.tab.wait_for_selector("#walk-o-element")

        def result(name, element, count):
            """The value of an element, computed, and in the model."""
            assert options(seen.tab, f"#walk-{name}-element") == list(range(count))
            pick(seen.tab, f"#walk-{name}-element", element)
            return found(r"= #; in the model #\.", seen.text(f"#walk-{name}-result"))

        pick(seen.tab, "#walk-k-key", key)
        for name, place in (("q", row), ("k", key)):
            wanted = getattr(call.projections, name).of(call.x[place])[head, 17], getattr(call, name)[head, place, 17]
            assert result(name, 17, D) == pytest.approx(wanted, rel=1e-5, abs=2e-6)
        assert result("o", 200, 384) == pytest.approx([call.projections.y[row, 200]] * 2, rel=1e-5, abs=2e-6)
        seen.context.close()


def test_a_page_without_q_and_k_has_no_matrices(run, monkeypatch):
    """Pages of long texts contain the weights alone."""
    monkeypatch.setattr(embed, "WALKED", 1)
    assert "matrices-0-" not in page(run)


def test_what_the_matrices_add_to_the_page(run):
    """At most 45 kB."""
    bare = dataclasses.replace(run, calls=tuple(dataclasses.replace(call, projections=None) for call in run.calls))
    assert 20_000 < len(page(run)) - len(page(bare)) <= 45_000
