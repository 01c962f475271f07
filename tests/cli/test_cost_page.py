"""`regard cost --page` in a process of its own: the file, what it shows first, and refusals."""

import json

import pytest

from tests.support.command import refused, regard

pytest.importorskip("transformers")

FIELDS = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 99,
}


@pytest.fixture
def config(tmp_path):
    """A small configuration in a file."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(FIELDS))
    return path


def test_a_page(config, tmp_path):
    """The report stays as it is; the page begins with what was given."""
    path = tmp_path / "cost.html"
    words = ("cost", str(config), "--tokens", "70", "--phase", "decode", "--dtype", "float16", "--fit", "3GB")
    plain = regard(*words)
    status, out, err = regard(*words, "--page", str(path))
    text = path.read_text(encoding="utf-8")
    begin = text.index('id="data">') + len('id="data">')
    start = json.loads(text[begin : text.index("</script>", begin)])["start"]

    assert (status, out) == (0, plain[1])
    assert err == f"Page written to {path}. Open it in a browser.\n"
    assert start == {
        "machine": None, "tokens": 70, "batch": 1, "phase": "decode", "dtype": "float16", "memory": 3_000_000_000,
    }  # fmt: skip


def test_a_page_that_cannot_be_written(config, tmp_path):
    """It is refused before the model runs."""
    assert "a folder" in refused("cost", str(config), "--page", str(tmp_path))
    assert "no folder" in refused("cost", str(config), "--page", str(tmp_path / "none" / "cost.html"))
    own = tmp_path / "notes.html"
    own.write_text("my notes")
    assert "the file exists and is not a page of regard" in refused("cost", str(config), "--page", str(own))
    assert own.read_text() == "my notes"
