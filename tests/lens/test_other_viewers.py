"""Weights for BertViz and CircuitsVis: what these viewers take is what transformers returns."""

import numpy as np
import pytest

import regard as rg
from regard.lens.look import of_weights

torch = pytest.importorskip("torch", reason="torch is not installed")
T = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module")
def causal():
    """A small GPT-2, and the attention that transformers' own code returns."""
    torch.manual_seed(0)
    config = T.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, attn_implementation="eager")
    model = T.GPT2LMHeadModel(config).eval()
    ids = torch.arange(2, 13)[None]
    with torch.no_grad():
        return rg.look(model, inputs={"input_ids": ids}), model(ids, output_attentions=True).attentions


def test_bertviz_takes_what_transformers_returns(causal):
    """A list with a tensor (1, heads, n, n) for each layer, and a token for each of n; nothing else."""
    run, attentions = causal
    given = run.to_bertviz()
    assert given.keys() == {"attention", "tokens"} and len(given["tokens"]) == 11
    assert all(isinstance(token, str) for token in given["tokens"])
    for found, exact in zip(given["attention"], attentions, strict=True):
        assert found.dtype == torch.float32 and found.shape == exact.shape
        torch.testing.assert_close(found, exact, atol=1e-6, rtol=1e-5)


def test_circuitsvis_takes_the_weights_of_a_layer(causal):
    """(heads, n, n), with names of heads; the upper triangle is hidden where nothing is in it."""
    run, attentions = causal
    given = run.to_circuitsvis(1)
    assert given.keys() == {"attention", "tokens", "attention_head_names", "mask_upper_tri"}
    np.testing.assert_allclose(given["attention"], attentions[1][0].numpy(), atol=1e-6)
    assert given["attention_head_names"] == ["1.0", "1.1", "1.2", "1.3"] and given["mask_upper_tri"] is True
    assert run.to_circuitsvis(run.calls[1].name)["tokens"] == given["tokens"]
    assert rg.look(text="The cat sat.").to_circuitsvis(0)["mask_upper_tri"] is False


def test_an_encoder_decoder_has_three_kinds_of_attention():
    """With BertViz's names; the texts have their own tokens."""
    torch.manual_seed(0)
    config = T.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0)
    config._attn_implementation = "eager"
    model = T.T5ForConditionalGeneration(config).eval()
    ids, decoded = torch.arange(2, 11)[None], torch.arange(3, 8)[None]
    with torch.no_grad():
        exact = model(input_ids=ids, decoder_input_ids=decoded, output_attentions=True)
    given = rg.look(model, inputs={"input_ids": ids, "decoder_input_ids": decoded}).to_bertviz()
    assert (len(given["encoder_tokens"]), len(given["decoder_tokens"])) == (9, 5)
    for name, of in {"encoder": "encoder", "decoder": "decoder", "cross": "cross"}.items():
        for found, wanted in zip(given[f"{name}_attention"], exact[f"{of}_attentions"], strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)


def test_a_generated_text_has_a_row_for_every_token():
    """The passes of a generation are one call."""
    torch.manual_seed(0)
    model = T.GPT2LMHeadModel(T.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=64)).eval()
    model.generation_config.eos_token_id = None
    run = rg.look(model, inputs={"input_ids": torch.arange(2, 8)[None]}, generate=4)
    given = run.to_bertviz()
    assert given["attention"][0].shape == (1, 2, 10, 10) and len(given["tokens"]) == 10
    np.testing.assert_allclose(given["attention"][0].sum(-1), 1, atol=1e-5)


def test_what_other_viewers_cannot_show_is_refused(monkeypatch):
    """Rows of a later part, two texts in CircuitsVis, layers of other sizes, too many weights: all reasons, and what
    helps.
    """
    q, k = np.zeros((2, 3, 4), np.float32), np.zeros((2, 5, 4), np.float32)
    with pytest.raises(rg.Refused, match=r"rows are missing(.|\n)*3 rows over 5 keys"):
        rg.look(q, k=k, query_start=2).to_bertviz()
    two = of_weights([np.full((2, 4, 4), 0.25), np.full((3, 4, 4), 0.25)])
    with pytest.raises(rg.Refused, match="layers of different sizes"):
        two.to_bertviz()
    assert two.to_circuitsvis(1)["attention"].shape == (3, 4, 4)
    monkeypatch.setattr("regard.lens.runs.other_viewers.MOST", 20)
    with pytest.raises(rg.Refused, match=r"too many weights(.|\n)*\(?80 weights"):
        two.to_bertviz()
