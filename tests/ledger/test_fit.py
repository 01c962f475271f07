"""Fit: the longest context and the largest batch that a memory holds, exactly."""

import pytest
import transformers  # noqa: F401, without which all is skipped

import regard as rg
from regard.ledger.cost import built, priced
from regard.ledger.fit import fit, size

FIELDS = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 99, "max_position_embeddings": 4096,
}  # fmt: skip


@pytest.mark.spread
@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
@pytest.mark.parametrize("memory", [900_000, 3_000_000, 20_000_000])
def test_one_more_does_not_fit(phase, memory):
    """The answer fits, and one token or one sequence more does not."""
    made = built(FIELDS)

    def held(tokens, batch):
        return priced(made, tokens, batch, phase).memory.held

    found = fit(made, memory, phase, 32, 2)
    if found.tokens is None:
        assert held(1, 2) > memory
    else:
        assert held(found.tokens, 2) <= memory
        assert found.tokens == 4096 or held(found.tokens + 1, 2) > memory
    if found.batch is None:
        assert held(32, 1) > memory
    else:
        assert held(32, found.batch) <= memory < held(32, found.batch + 1)


def test_nothing_fits():
    """Said with what one token needs."""
    assert "nothing fits: one token needs" in str(fit(built(FIELDS), 1000, "train", 32, 1))


def test_a_window_holds_any_context():
    """A cache of w − 1 keys does not grow, so the model's positions are the limit."""
    made = built(FIELDS | {"model_type": "mistral", "sliding_window": 8})

    assert fit(made, 1_000_000, "decode", 32, 1).tokens == 4096


@pytest.mark.parametrize(
    ("text", "number"),
    {
        "24GB": 24 * 10**9,
        "24 GB": 24 * 10**9,
        "1.5GiB": 3 << 29,
        "80e9": 80 * 10**9,
        "512": 512,
        "2kB": 2000,
    }.items(),
)
def test_sizes(text, number):
    """Powers of 1000, or of 1024 with an i."""
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "24 bananas", "1e999GB", "nan", "0"])
def test_what_is_no_size_is_refused(text):
    """With an example of one."""
    with pytest.raises(rg.Refused, match="24GB"):
        size(text)
