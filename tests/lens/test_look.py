"""`look`: whatever is given becomes a run, or is refused in a sentence; models are opened from files alone."""

import functools
import hashlib
import io
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers as T

import regard as rg
from regard.common import default_model
from regard.lens import look
from regard.lens.recording.token_text import spelled
from regard.lens.runs.first_view import choose
from regard.torch.hf import load_model
from tests.lens.minilm import SENTENCE, with_minilm
from tests.support.engines import normal
from tests.support.kernels import fresh
from tests.support.refusals import refusal, refusing

refused = functools.partial(refusal, look)


def eager_weights(folder, kind=None, dtype=torch.float32, **inputs):
    """The attention as transformers' own code returns it."""
    model = (kind or T.AutoModel).from_pretrained(str(folder), attn_implementation="eager", dtype=dtype)
    with torch.no_grad():
        return model.eval()(**inputs, output_attentions=True)


# Models and texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom"])
def test_any_decoder_can_be_looked_at(folders, kind):
    """Its tokens spell the text. (Its weights: test_recording.)"""
    run = look(folders[kind], SENTENCE)
    assert ("".join(run.axes["text"].tokens), run.model, run.text) == (SENTENCE, folders[kind].name, SENTENCE)
    assert {call.engine for call in run.calls} == {"written out" if kind == "bloom" else "regard jit"}


def test_a_causal_model_says_what_it_expected(folders):
    """The likeliest token at each place from the logits before it, and after the text; a model whose rows see later
    tokens expects nothing.
    """
    tokenizer = T.AutoTokenizer.from_pretrained(folders["gpt2"])
    model = T.GPT2LMHeadModel.from_pretrained(folders["gpt2"]).eval()
    run = look(model, SENTENCE, tokenizer=tokenizer)
    p = model(**tokenizer(SENTENCE, return_tensors="pt")).logits[0].softmax(-1).detach().numpy()
    words = spelled(tokenizer, p.argmax(-1).tolist(), None)
    expected = [*run.facts["expected"], run.facts["predicted"][0]]
    assert [word for word, _ in expected] == list(words)
    np.testing.assert_allclose([each for _, each in expected], p.max(-1), rtol=1e-4)
    size = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    reads = T.BertForMaskedLM(T.BertConfig(**size, num_hidden_layers=1)).eval()
    assert "expected" not in look(reads, SENTENCE, tokenizer=tokenizer).facts


def test_an_encoder_decoder_and_its_target(folders):
    """Three kinds of calls between two axes; the decoder reads its start and the target, as it does when it learns."""
    run = look(folders["t5"], SENTENCE, target="It was tired.")
    tokenizer = T.AutoTokenizer.from_pretrained(folders["t5"])
    target = tokenizer("<s>It was tired.", return_tensors="pt")["input_ids"]
    given = dict(tokenizer(SENTENCE, return_tensors="pt"), decoder_input_ids=target)
    exact, usual = (eager_weights(folders["t5"], dtype=dtype, **given) for dtype in (torch.float64, torch.float32))
    assert "".join(run.axes["target"].tokens) == "<s>It was tired."
    assert run.axes["target"].special == (True, *[False] * (target.shape[1] - 1))
    for *kind, part in ("source", "source", "encoder"), ("target", "target", "decoder"), ("target", "source", "cross"):
        calls = [call.weights() for call in run.calls if [call.queries, call.keys] == kind]
        # T5 does not scale its scores, so rounding weighs more than elsewhere: as much as in its own float32.
        wanted, rounded = (np.concatenate(each[f"{part}_attentions"]) for each in (exact, usual))
        np.testing.assert_allclose(calls, wanted, rtol=0, atol=4 * np.abs(rounded - wanted).max())
    assert "an encoder–decoder model without a target text" in refused(folders["t5"], SENTENCE)
    assert "target= is not used" in refused(folders["gpt2"], SENTENCE, target="It")


def test_one_of_several_texts(folders):
    """Texts of several lengths go through the model together; padding is special, and nobody looks at it."""
    texts = [SENTENCE, "it was"]
    run, alone = look(folders["llama"], texts, entry=1), look(folders["llama"], "it was")
    n, axis, p = len(alone.axes["text"]), run.axes["text"], run.calls[1].weights()
    assert (run.text, axis.tokens[:n]) == ("it was", alone.axes["text"].tokens)
    assert axis.special == (False,) * n + (True,) * (len(axis) - n)
    np.testing.assert_allclose(p[:, :n, :n], alone.calls[1].weights(), atol=5e-6)
    assert not p[:, :, n:].any()
    assert "no such batch entry" in refused(folders["llama"], texts, entry=2)


def test_a_text_that_the_model_writes(folders):
    """The steps are those of the model: candidates are its probabilities, and the first is what it wrote. (That their
    weights are rows of one call: test_recording.)
    """
    run = look(folders["llama"], "the animal", generate=5)
    model = T.LlamaForCausalLM.from_pretrained(folders["llama"])
    ids = T.AutoTokenizer.from_pretrained(folders["llama"])("the animal", return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=6, do_sample=False, output_scores=True, return_dict_in_generate=True)
    prompt, n = ids["input_ids"].shape[1], out.sequences.shape[1] - 1
    assert run.facts["generated"] == len(run.steps) > 0 and run.calls[0].shape == (4, n, n)
    assert [step.position for step in run.steps] == [*range(prompt, n)]
    for step, scores in zip(run.steps, out.scores, strict=False):
        words, shares = zip(*step.candidates)
        np.testing.assert_allclose(shares, scores[0].double().softmax(-1).topk(8).values, rtol=1e-4)
        assert words[0] == run.axes["text"].tokens[step.position]
    assert "too long" in refused(folders["llama"], "the animal", generate=64)


def test_only_the_bytes_of_split_characters_are_spelled():
    """Whole characters of the same token stay as they are; bytes of SentencePiece are written in the same way."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    letters = bytes_to_unicode()
    known = {letter: byte for byte, letter in letters.items()}

    def spell(*tokens):
        tokenizer = SimpleNamespace(
            convert_ids_to_tokens=lambda ids: [tokens[i] for i in ids],
            convert_tokens_to_string=lambda some: bytes(known[each] for each in some[0]).decode("utf-8", "replace"),
        )
        return spelled(tokenizer, range(len(tokens)), None)

    parts = b" \xc3\xa9\xf0\x9f", b"\xa6\x8ab", b"\xef\xbf\xbd"
    assert spell(*("".join(letters[byte] for byte in part) for part in parts)) == (" é⟨F0⟩⟨9F⟩", "⟨A6⟩⟨8A⟩b", "\ufffd")
    assert spell("<0xF0>", "▁a") == ("⟨F0⟩", " a")


@with_minilm
def test_unknown_tokens_keep_their_letters(tmp_path):
    """In the run and in a saved run; the token stays what the model saw, and is found by its letters. A text may spell
    the unknown token itself, which stands for no other letters.
    """
    run = look(None, "He saw 𓀀, and 这 too.", into=tmp_path / "run")
    axis = run.axes["text"]
    assert [(axis.tokens[i], letters) for i, letters in axis.unknown] == [(" [UNK]", "𓀀"), (" [UNK]", "这")]
    assert look(tmp_path / "run").axes == run.axes
    assert choose(run, token="这").query == axis.unknown[1][0]
    axis = look(None, "the token [UNK] is known").axes["text"]
    assert " [UNK]" in axis.tokens and axis.unknown == ()


def test_unknown_tokens_of_other_tokenizers_keep_their_letters(folders):
    """By the offsets of the tokenizer of a model of transformers."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "animal": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = T.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    model = T.AutoModelForCausalLM.from_pretrained(folders["gpt2"])
    axis = look(model, "the 𓀀 animal saw", tokenizer=tokenizer).axes["text"]
    assert axis.tokens == ("the", " <unk>", " animal", " <unk>") and axis.unknown == ((1, "𓀀"), (3, "saw"))


def test_an_image(folders, tmp_path):
    """A picture file becomes patches in their grid behind the class token, with the pixels that the model saw."""
    from PIL import Image

    colours = np.zeros((48, 48, 3), np.uint8)
    colours[:24, :24, 0] = 255  # the first quarter is red
    Image.fromarray(colours).save(tmp_path / "red.png")
    run, again = (look(folders["vit"], picture=picture) for picture in (tmp_path / "red.png", colours))
    axis, call = run.axes["patches"], run.calls[0]
    assert (axis.grid, axis.special, axis.tokens[:3]) == ((4, 4), (True, *[False] * 16), ("[CLS]", "0,0", "0,1"))
    assert (call.queries, call.keys, call.shape) == ("patches", "patches", (4, 17, 17))
    seen = np.array(Image.open(io.BytesIO(axis.picture)))
    assert seen.shape == (32, 32, 3) and seen[4, 4].tolist() == [255, 0, 0] and not seen[28, 28].any()
    assert np.array_equal(again.calls[0].q, call.q)
    assert "the image cannot be read" in refused(folders["vit"], picture=tmp_path / "none.png")
    assert "not an image" in refused(folders["vit"], picture=np.zeros((4, 4)))


# The default model ----------------------------------------------------------------------------------------------------


@with_minilm
def test_the_default_model_has_transformers_numbers():
    """Without torch, the default model gives transformers' own weights; the same tokens, calls and hash as its folder
    opened.
    """
    run, folder = look(None, SENTENCE), default_model.default_folder()
    exact = eager_weights(folder, **T.AutoTokenizer.from_pretrained(folder)(SENTENCE, return_tensors="pt")).attentions
    axis, opened = run.axes["text"], look(folder, SENTENCE)
    assert "".join(axis.tokens) == "[CLS]the animal didn't cross the street because it was too tired.[SEP]"
    assert axis.special == (True, *[False] * 14, True)
    assert (opened.axes["text"], opened.facts["weights"]) == (axis, run.facts["weights"])
    np.testing.assert_allclose([call.weights() for call in run.calls], np.concatenate(exact), atol=3e-6)
    for call, other in zip(run.calls, opened.calls, strict=True):
        assert (call.name, call.layer) == (other.name, other.layer)
        for name in ("x", "v", "out"):
            np.testing.assert_allclose(getattr(call, name), getattr(other, name), atol=2e-5)


@with_minilm
def test_the_default_model_needs_no_torch():
    """A first look loads neither torch nor transformers nor the code of the model's package."""
    code = f"import sys; from regard.lens import look; look(None, {SENTENCE!r}); print(*sys.modules)"
    loaded = fresh(code).split()
    assert "numpy" in loaded
    assert not {"torch", "transformers", default_model.PACKAGE} & set(loaded)


@pytest.mark.slow
@with_minilm
def test_a_text_longer_than_the_default_model_takes():
    """512 tokens are read; 513 are one too many, and the sentence says so."""
    assert len(look(None, "word " * 510, layers=0, values=False).axes["text"]) == 512
    said = refused(None, "word " * 511)
    assert "too long for the model" in said and "513 tokens" in said and "at most 512" in said


def test_weights_that_are_not_the_pinned_ones_are_refused(tmp_path):
    """One changed byte in the default model's weights is noticed, also after they were read, and a missing file."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    default_model.verify(file, hashlib.sha256(b"weights").hexdigest())
    with refusing("not the pinned ones"):
        default_model.verify(file, hashlib.sha256(b"Weights").hexdigest())
    file.write_bytes(b"weigths")
    for path in (file, tmp_path / "none"):
        with refusing("not the pinned ones"):
            default_model.verify(path, hashlib.sha256(b"weights").hexdigest())


# Files that are not what they should be -------------------------------------------------------------------------------


def test_code_that_a_model_brings_is_not_run(tmp_path):
    """A folder whose config asks for code of its own is refused, and the code does not run."""
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModel": "own.Own"}}'
    )
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'harmed')!r}, 'w')")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "cannot be loaded" in refused(tmp_path, "words")
    assert not (tmp_path / "harmed").exists()


def test_libraries_are_left_as_they_were(folders):
    """Opening a model leaves what transformers and the hub say and draw as it was, also where it fails."""
    from huggingface_hub.utils import logging as hub

    own = T.utils.logging
    before = own.get_verbosity(), hub.get_verbosity()
    own.set_verbosity_info(), hub.set_verbosity_info(), own.enable_progress_bar()
    try:
        load_model.opened(folders["llama"], reads=False)
        assert "cannot be loaded" in refused(folders["llama"], picture=np.zeros((8, 8, 3)))
        assert own.get_verbosity() == own.INFO and hub.get_verbosity() == hub.INFO and own.is_progress_bar_enabled()
    finally:
        own.set_verbosity(before[0]), hub.set_verbosity(before[1])


def test_an_error_inside_a_load_is_not_swallowed(folders, monkeypatch):
    """Only the table of a model that does not know regard sends it back to its own code; any other missing key is
    said.
    """
    real, asked = T.AutoModel.from_pretrained, []

    def load(*args, attn_implementation, **named):
        asked.append(attn_implementation)
        if attn_implementation == "regard":
            raise KeyError(missing)
        return real(*args, attn_implementation=attn_implementation, **named)

    monkeypatch.setattr(T.AutoModel, "from_pretrained", load)
    missing = "rope_theta"
    with refusing("rope_theta"):
        load_model.opened(folders["llama"], reads=False)
    missing = "regard"
    load_model.opened(folders["llama"], reads=False)
    assert asked == ["regard", "regard", "eager"]


def test_a_broken_model_is_refused(folders, tmp_path):
    """Weights that are missing are not made up at random, as transformers does; weights that are cut short, folders
    without a model, names that lead nowhere give a sentence, no traceback.
    """
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(folders["gpt2"], tmp_path / "model")
    weights = folder / "model.safetensors"
    kept = load_file(weights)
    del kept["transformer.h.1.attn.c_attn.weight"]
    save_file(kept, weights, {"format": "pt"})
    assert re.search(r"(?s)1 are missing.*h\.1\.attn\.c_attn\.weight", refused(folder, "words"))
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert "the model cannot be loaded" in refused(folder, "words")
    weights.unlink()
    assert "no weights that can be read safely" in refused(folder, "words")
    (folder / "config.json").unlink()
    assert "not a model folder" in refused(folder, "words")
    assert "no such model" in refused("./nowhere", "words")


# What is kept ---------------------------------------------------------------------------------------------------------


def test_layers_values_and_limit(folders, tmp_path):
    """Chosen layers alone; values as asked; sizes are stated before they are passed."""
    given = folders["llama"], SENTENCE
    run = look(*given, layers=[1], values=False)
    (call,) = run.calls
    assert call.layer == 1 and call.v is call.x is call.out is None
    assert run.facts["layers"] == [1] and run.facts["values"] is False
    assert [call.layer for call in look(*given, layers="layers.0.*").calls] == [0]
    for more, said in (
        ({"layers": [0, "*.cross"]}, "no such layer"),
        ({"layers": []}, "layers is not a selection of layers"),
        ({"limit": "20 kB", "into": tmp_path / "run"}, "larger than the limit.*at most 20 kB.*choose layers"),
    ):
        assert re.search(f"(?s){said}", refused(*given, **more))
    assert not (tmp_path / "run").exists()


def test_a_size_is_known_from_the_first_call(folders):
    """A run beyond the limit stops at its first call: the layers after it do not run."""
    model, inputs = T.LlamaForCausalLM.from_pretrained(folders["llama"]), {"input_ids": torch.arange(9)[None]}
    (call,) = look(model, inputs=inputs, layers=0).calls
    size = sum(part.nbytes for part in vars(call).values() if isinstance(part, np.ndarray))
    ran = []
    model.model.layers[1].register_forward_pre_hook(lambda *_: ran.append(1))
    assert "about" in refused(model, inputs=inputs, limit=int(1.5 * size)) and not ran


# Arrays and weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_arrays_and_their_rules(kind):
    """q and k with any rules give the weights of `attention_weights`."""
    q, k, v = normal(3, 4, 6, 8)
    rules = {"mask": rg.causal(), "score": rg.softcap(2.0), "scale": 0.7, "sinks": np.arange(4, dtype=np.float32)}
    run = look(kind(q), k=kind(k[:2]), v=kind(v[:2]), tokens=list("abcdef"), special=[1, 0, 0, 0, 0, 0], **rules)
    np.testing.assert_allclose(run.calls[0].weights(), rg.attention_weights(q, k[:2], **rules), atol=1e-6)
    assert run.axes["keys"].special == (True, *[False] * 5) and np.array_equal(run.calls[0].v, v[:2])


def test_weights_and_where_rows_stand():
    """One array is a layer, a list is several; an entry of a batch is chosen. Rows and keys are two axes where they
    differ in their number, or in where they stand: row 0 at "c" is not called "a".
    """
    p = np.full((2, 3, 4, 4), 0.25)
    run = look(weights=[p, p], mask=rg.causal(), entry=1)
    assert [(call.layer, call.shape) for call in run.calls] == [(0, (3, 4, 4)), (1, (3, 4, 4))]
    np.testing.assert_allclose(run.calls[0].rows["forbidden"][0], [0.75, 0.5, 0.25, 0])
    assert run.facts["versions"]["regard"] == rg.__version__ and run.facts["date"] and run.facts["exact"]
    for rows, more in ((2, {}), (4, {"query_start": 2})):
        run = look(p[0, :1, :rows], k=p[0, :1], tokens=list("abcd"), **more)
        assert (run.calls[0].queries, run.calls[0].start, run.calls[0].shape) == ("queries", 2, (1, rows, 4))
        assert run.axes["queries"].tokens == tuple("0123"[:rows])


ONES, TEXT, LINEAR = np.ones((1, 2, 2)), (None, "words"), torch.nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((), {}, "nothing to run"),
        (TEXT, {"k": ONES}, "k= has no meaning for a model"),
        (TEXT, {"tokenizer": len, "inputs": {}}, "two kinds of inputs"),
        (TEXT, {"entry": 1}, "no such batch entry"),
        (TEXT, {"entry": -1}, "entry is not a batch entry"),
        (TEXT, {"limit": "much"}, "not a size in bytes"),
        (TEXT, {"generate": 2}, "a model that does not write"),
        ((None, ""), {}, "no text"),
        ((ONES,), {}, "q without k"),
        ((ONES,), {"k": ONES, "text": "a", "layers": 0}, "layers= has no meaning for q and k"),
        ((ONES,), {"k": ONES, "tokens": ["a"]}, "the number of tokens is not the number of keys"),
        ((ONES[None].repeat(2, 0),), {"k": ONES[None].repeat(2, 0)}, "several batch entries"),
        ((3,), {}, "an argument of a type that cannot be recorded"),
        ((), {"weights": ONES, "scale": 2.0}, "scale= has no meaning for weights"),
        ((), {"weights": np.ones(3)}, "not an array of weights"),
        ((), {"weights": [ONES, np.ones((1, 3, 3))]}, "different sizes"),
        ((LINEAR,), {}, "nothing to run"),
        ((LINEAR,), {"inputs": torch.ones(1, 3), "text": "a"}, "text= has no meaning for a module"),
        ((LINEAR,), {"inputs": torch.ones(1, 3)}, "no attention call was observed"),
    ],
)
def test_what_does_not_go_together_is_refused(given, named, said):
    """Every argument is used or refused, and what is lacking is named."""
    assert said in refused(*given, **named)
