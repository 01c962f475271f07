"""`regard audit FILE.py:NAME` and `regard look FILE.py:NAME`: models as people write them, and their inputs."""

import json

import pytest

from tests.support.command import done, refused

FILE = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.TransformerEncoderLayer(16, 2, batch_first=True)

    def forward(self, x):
        return self.attend(x)


class Tokens(Layer):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 16)

    def forward(self, ids):
        return self.attend(self.table(ids))


class Masked(Tokens):
    def forward(self, input_ids, attention_mask):
        return self.attend(self.table(input_ids), src_key_padding_mask=attention_mask == 0)


class Two(Layer):
    def forward(self, x, y):
        return self.attend(x) + y


class Example(Layer):
    example_input_array = torch.randn(1, 5, 16)


class Sized(Layer):
    def __init__(self, width):
        super().__init__()


layer = Layer()
two = torch.randn(1, 9, 16), torch.randn(1, 9, 16)


def named():
    return {"x": torch.randn(1, 9, 16), "y": torch.zeros(1, 9, 16)}


def factory():
    return Sized(16)


def with_inputs():
    return Two(), two


number = 3
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Everything happens in a folder with the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)


@pytest.mark.parametrize(
    "words",
    [
        *(["audit", name] for name in ("Layer", "Tokens", "Masked", "Example", "layer", "factory", "with_inputs")),
        *(["audit", "Two", "--inputs", name] for name in ("two", "named")),
        ["look", "Tokens"],
        ["look", "Two", "--inputs", "two"],
    ],
    ids=" ".join,
)
def test_a_model_in_a_file(tmp_path, words):
    command, name, *rest = words
    out = done(command, f"mine.py:{name}", *rest)
    assert (tmp_path / "attention.html").is_file() if command == "look" else len(out.splitlines()) <= 15


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["audit", "Two"], "--inputs NAME"),
        (["audit", "Sized"], "write a function"),
        (["audit", "number"], "is not a model"),
        (["audit", "Laye"], "did you mean 'Layer'?"),
        (["look", "Tokens", "a text"], "has no meaning for a module"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_is_not_a_model_is_refused(words, says):
    command, name, *rest = words
    assert says in refused(command, f"mine.py:{name}", *rest)


def test_inputs_of_another_model_are_refused():
    for words in (["audit", "--inputs", "x"], ["look", "a text", "--inputs", "x"]):
        assert "is for models in Python files" in refused(*words)


def test_a_configuration_alone_gets_random_weights(tmp_path):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = {"model_type": "llama", "vocab_size": 60, **sizes, "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "random weights" in done("audit", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert "no weights that can be read safely" in refused("audit", tmp_path)
