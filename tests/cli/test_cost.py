"""`regard cost` in a process of its own: report, JSON, memory that is given, exit status, refusals."""

import json

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.common.errors import Refused
from tests.support.command import refused, regard

pytest.importorskip("transformers")

FIELDS = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99, "max_position_embeddings": 512,
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """A small configuration in a file."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FIELDS))
    return path


def test_a_report(config):
    """Three phases, one below the other; every part with its share."""
    status, out, err = regard("cost", str(config), "--tokens", "64", "--phase", "prefill,decode,train")

    assert (status, err) == (0, "")
    assert [line.split(":")[1].split(",")[0].strip() for line in out.splitlines() if "LlamaForCausalLM" in line] == [
        "prefill of 64 tokens", "one token after 64", "one training step of 64 tokens",
    ]  # fmt: skip
    assert out.count("feed-forward") == 3 and "FAULT" not in out
    assert "KV cache, bytes" in out and "with checkpoints" in out


def test_layers(config):
    """A line for each part of each layer."""
    _, out, _ = regard("cost", str(config), "--tokens", "64", "--layers")

    assert [out.count(f"model.layers {number} attention") for number in range(4)] == [1, 1, 1, 0]


def test_the_word_model_may_be_left_out(config):
    """Options may come first, too."""
    results = {
        regard("cost", *words)[1]
        for words in (
            (str(config), "--tokens", "64"),
            ("model", str(config), "--tokens", "64"),
            ("--tokens", "64", str(config)),
        )
    }

    assert len(results) == 1


def test_json(config):
    """One object, with a cost for each phase and what fits."""
    status, out, _ = regard(
        "cost", str(config), "--phase", "decode,train", "--fit", "10MB", "--json", "--machine", "l4"
    )
    found = json.loads(out)

    assert status == 0 and [each["phase"] for each in found["costs"]] == ["decode", "train"]
    assert all(each["time"]["bound"] > 0 for each in found["costs"])
    assert [each["memory"] for each in found["fits"]] == [10_000_000] * 2


def test_over(config):
    """A line for each number of tokens; attention takes a larger share of longer ones."""
    status, out, _ = regard("cost", str(config), "--tokens", "8", "--over", "16,64,256", "--phase", "train")
    shares = [float(line.rpartition(" ")[2].rstrip("%")) for line in out.splitlines() if "░" in line]

    assert status == 0 and len(shares) == 3 and shares == sorted(shares)
    found = json.loads(regard("cost", str(config), "--over", "16,64", "--json")[1])
    assert [each["tokens"] for each in found["over"][0]] == [16, 64]


def test_measure(config):
    """What the model held, and how long it took, beside the rest."""
    status, out, _ = regard("cost", str(config), "--tokens", "32", "--measure")

    assert status == 0 and "measured" in out and "times the bound" in out


def test_a_fault_is_status_1(config, tmp_path):
    """The files lack a layer of the configuration."""
    transformers = pytest.importorskip("transformers")
    fields = {name: value for name, value in FIELDS.items() if name != "model_type"} | {"num_hidden_layers": 2}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).save_pretrained(tmp_path)
    config.write_text(json.dumps(FIELDS))
    status, out, _ = regard("cost", str(tmp_path), "--tokens", "8")

    assert status == 1 and "FAULT: parameters" in out


def test_a_refusal():
    """Status 2, and how to mend it."""
    assert "did you mean 'llama'" in refused("cost", "lama")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ("--phase prefill,sleep", "the phase is unknown"),
        ("--over 1,x", "the numbers of tokens cannot be read"),
        ("--fit much", "the memory cannot be read"),
        ("--measure --machine l4", "only this machine can be measured"),
        ("--machine h1000", "an unknown machine"),
    ],
)
def test_refusals(options, what, config):
    """One reason each."""
    with pytest.raises(Refused, match=what):
        CliRunner().invoke(app, ["cost", str(config), *options.split()], catch_exceptions=False)


def test_a_model_that_fails(config):
    """It has fewer positions than there are tokens."""
    words = "cost", _with(config, model_type="gpt2", n_positions=16, n_layer=1), "--tokens", "40", "--measure"
    with pytest.raises(Refused, match="the model fails when it runs"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def _with(config, **fields):
    config.write_text(json.dumps(fields))
    return str(config)
