"""`regard cost`: report, JSON, page, memory that is given, exit status, refusals."""

import json

import pytest
import transformers

from regard.ledger.machine import Machine
from tests.support.command import done, refused, regard

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


@pytest.fixture
def known(monkeypatch):
    """This machine is known: measuring it takes seconds, and tests/ledger/test_machine.py does it."""
    monkeypatch.setattr(Machine, "here", lambda: Machine.named("l4"))


def test_a_report(config):
    """Three phases, one below the other; every part with its share, and every layer where it is asked for."""
    out = done("cost", config, "--tokens", "64", "--phase", "prefill,decode,train", "--layers")

    assert [line.split(":")[1].split(",")[0].strip() for line in out.splitlines() if "LlamaForCausalLM" in line] == [
        "prefill of 64 tokens", "one token after 64", "one training step of 64 tokens",
    ]  # fmt: skip
    assert out.startswith(f"configuration: {config}; dtype: float32") and "FAULT" not in out
    assert all(words in out for words in ("KV cache", "formula = counted", "with checkpoints"))
    assert [out.count(f"model.layers {number} attention") for number in range(4)] == [3, 3, 3, 0]


def test_json(config):
    """One object, with a cost for each phase and what fits."""
    words = ("--phase", "decode,train", "--fit", "10MB", "--json", "--machine", "l4", "--over", "16,64")
    found = json.loads(done("cost", config, *words))

    assert [each["phase"] for each in found["costs"]] == ["decode", "train"]
    assert all(each["time"]["bound"] > 0 for each in found["costs"])
    assert [each["memory"] for each in found["fits"]] == [10_000_000] * 2
    assert [[each["tokens"] for each in phase] for phase in found["over"]] == [[16, 64]] * 2


@pytest.mark.usefixtures("known")
def test_measure(config):
    """What the model held, and how long it took, beside the rest."""
    out = done("cost", config, "--tokens", "32", "--measure")

    assert "measured" in out and "times the bound" in out


def test_a_fault_is_status_1(config, tmp_path):
    """The files lack a layer of the configuration."""
    fields = transformers.LlamaConfig(**FIELDS | {"num_hidden_layers": 2})
    transformers.LlamaForCausalLM(fields).save_pretrained(tmp_path)
    config.write_text(json.dumps(FIELDS))
    status, out, _ = regard("cost", tmp_path, "--tokens", "8")

    assert status == 1 and "FAULT: parameters" in out


@pytest.mark.usefixtures("known")
def test_refusals(config):
    """Status 2, and one sentence each; a model that fails has fewer positions than there are tokens."""
    short = config.with_name("short.json")
    short.write_text(json.dumps({"model_type": "gpt2", "n_positions": 16, "n_layer": 1}))
    for model, options, what in (
        ("lama", "", "did you mean 'llama'"),
        (config, "--phase prefill,sleep", "the phase is unknown"),
        (config, "--over 1,x", "the numbers of tokens cannot be read"),
        (config, "--fit much", "the memory cannot be read"),
        (config, "--measure --machine l4", "only this machine can be measured"),
        (config, "--machine h1000", "an unknown machine"),
        (short, "--tokens 40 --measure", "the model fails when it runs"),
    ):
        assert what in refused("cost", model, *options.split()), options


def test_a_plot(config, tmp_path):
    """An image of several lengths and phases, and a line for each; test_output_files.py has what cannot be written."""
    path = tmp_path / "over.png"
    status, out, err = regard("cost", config, "--over", "8,16,32", "--phase", "prefill,train", "--plot", path)
    assert status == 0 and "over the number of tokens" in out and err == f"Plot written to {path}.\n"
    assert sum("░" in line for line in out.splitlines()) == 2 * 3
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "a plot of nothing" in refused("cost", config, "--plot", path)
    assert "not a PNG file" in refused("cost", config, "--over", "8", "--plot", tmp_path / "over.svg")
