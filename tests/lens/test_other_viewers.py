"""Weights for BertViz and CircuitsVis: what these viewers take is what transformers returns."""

import numpy as np
import torch

import regard as rg
from regard.lens.look import of_weights
from regard.torch.hf.tiny_models import tiny_model
from tests.support.refusals import refusing


def test_they_take_what_transformers_returns():
    """BertViz: a list with a tensor (1, heads, n, n) for each layer, and a token for each of n; nothing else.
    CircuitsVis: the weights of a layer, with names of heads; the upper triangle is hidden where nothing is in it.
    """
    model, inputs = tiny_model("gpt2"), {"input_ids": torch.arange(2, 13)[None]}
    run = rg.look(model, inputs=inputs)
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
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
