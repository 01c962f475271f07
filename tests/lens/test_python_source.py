"""Where a run comes from: the Python that a page hands on gives the same run, or says that it has to be saved."""

import numpy as np
import torch
import transformers as T

import regard as rg
from regard.lens import look
from regard.lens.viewer.queries import origin
from tests.lens.minilm import SENTENCE, with_minilm


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
