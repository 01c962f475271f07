"""The weights of a run as an array, as a frame, and for BertViz and CircuitsVis: they are what transformers returns."""

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import torch

import regard as rg
from regard.lens import Axis, Call
from regard.lens.look import of_weights
from regard.torch.hf.tiny_models import tiny_model
from tests.support.engines import normal
from tests.support.refusals import refusing


def test_they_take_what_transformers_returns():
    """BertViz: a list with a tensor (1, heads, n, n) for each layer, and a token for each of n; nothing else.
    CircuitsVis: the weights of a layer, with names of heads; the upper triangle is hidden where nothing is in it.
    """
    model, inputs = tiny_model("gpt2"), {"input_ids": torch.arange(2, 13)[None]}
    run = rg.look(model, inputs=inputs)
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    np.testing.assert_allclose(run.weights(), np.concatenate(attentions), atol=1e-5)
    given, layer = run.to_bertviz(), run.to_circuitsvis(1)
    assert given.keys() == {"attention", "tokens"} and [*map(type, given["tokens"])] == [str] * 11
    torch.testing.assert_close(given["attention"], list(attentions), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(layer.pop("attention"), attentions[1][0], atol=1e-5)
    names = [f"1.{head}" for head in range(4)]
    assert layer == {"tokens": given["tokens"], "attention_head_names": names, "mask_upper_tri": True}
    assert run.to_circuitsvis(run.calls[1].name)["attention_head_names"] == names
    assert of_weights(np.full((1, 4, 4), 0.25)).to_circuitsvis(0)["mask_upper_tri"] is False


def test_an_encoder_decoder_has_three_kinds_of_attention():
    """With BertViz's names; the texts have their own tokens."""
    model = tiny_model("t5")
    inputs = {"input_ids": torch.arange(2, 11)[None], "decoder_input_ids": torch.arange(3, 8)[None]}
    with torch.no_grad():
        exact = model(**inputs, output_attentions=True)
    given = rg.look(model, inputs=inputs).to_bertviz()
    assert (len(given["encoder_tokens"]), len(given["decoder_tokens"])) == (9, 5)
    for name in ("encoder", "decoder", "cross"):
        torch.testing.assert_close(given[f"{name}_attention"], list(exact[f"{name}_attentions"]), atol=1e-5, rtol=1e-5)


def test_what_other_viewers_cannot_show_is_refused(monkeypatch):
    """Rows of a later part, two texts in CircuitsVis, layers of other sizes, too many weights: all reasons, and what
    helps.
    """
    two = of_weights([np.full((heads, 4, 4), 0.25) for heads in (2, 3)])
    assert two.to_circuitsvis(1)["attention"].shape == (3, 4, 4)
    monkeypatch.setattr("regard.lens.runs.run.MOST", 20)
    for run, said in (
        (rg.look(np.zeros((2, 3, 4)), k=np.zeros((2, 5, 4)), query_start=2), "rows are missing.*3 rows over 5 keys"),
        (two, "too many weights.*80 weights.*layers of different sizes"),
    ):
        with refusing(said):
            run.to_bertviz()


def test_words_are_positions():
    """The word, in any case, with the space before it, or of several tokens; a list of words and numbers. What is not
    one place is refused with all places.
    """
    q, k = normal(2, 2, 5, 8)
    words = ["The", " animal", " it", " trans", "former"]
    run = rg.look(q, k=k, tokens=words)
    (call,), exact = run.calls, run.weights()
    np.testing.assert_array_equal(call.weights("IT", ["animal", 0, "transformer"], 1), exact[0][1:, [2], [[1, 0, 4]]])
    twice = dataclasses.replace(run, axes={"keys": Axis.of(["it", *words[1:]])})
    with refusing("several such tokens.*'it' at 0, 2.*pass one of the positions: 0, 2"):
        twice.calls[0].weights("it")
    with refusing("no such token.*'dog'"):
        call.scores(keys="dog")


def test_frames_and_files(tmp_path, monkeypatch):
    """A row for each allowed pair, with its tokens; without pandas the fix is named. Layers that differ are no array;
    rollout is a product of them. In a notebook, a call shows itself, also one that was made by hand.
    """
    q, k = normal(2, 2, 3, 8)
    run = rg.look(q, k=k, mask=rg.causal(), tokens=["zebra", "b", "c"])
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    columns, (call,) = run.to_pandas(), run.calls
    assert [*columns["query_token"][:3], *columns["key_token"][3:6]] == ["zebra", "b", "b", "zebra", "b", "c"]
    np.testing.assert_array_equal(columns["weight"], call.weights()[call.allowed()])
    run.to_npz(tmp_path / "run.npz")
    np.testing.assert_allclose(np.load(tmp_path / "run.npz")["weights"], run.weights(), rtol=1e-6)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refusing("pandas is not installed.*pip install pandas"):
        run.to_pandas()
    with refusing("layers of different sizes.*call by call"):
        of_weights([np.full((heads, 4, 4), 0.25) for heads in (2, 3)]).weights()
    first, last = (np.tri(3, k=-each) + np.eye(3) for each in (0, 1))
    first, last = (each / each.sum(1, keepdims=True) for each in (first, last))
    rolled = of_weights([first[None], last[None]]).rollout()
    np.testing.assert_allclose(rolled, (last + np.eye(3)) / 2 @ (first + np.eye(3)) / 2, rtol=1e-6)
    bare = Call("mine", 0, "rows", "keys", call.lse, call.q, call.k)
    assert "regard · attention" in call._repr_html_() and "regard · mine" in bare._repr_html_()
