"""`python -m bench --cases families`: its table, every task on a tiny model, and that wrong results are not timed."""

import io
import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rich.console import Console  # noqa: E402

from bench import families, report  # noqa: E402
from bench.families import Line, Model  # noqa: E402
from bench.interleave import Pace, Timed, means  # noqa: E402
from bench.tables_page import PAGES, page  # noqa: E402

BRIEF = Pace(rounds=1, burst=0.001, pause=0.0)
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {"vocab_size": 50}
T5 = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
WHISPER = {
    "d_model": 16,
    "num_mel_bins": 4,
    "max_source_positions": 20,
    **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in (("layers", 1), ("ffn_dim", 32))},
    **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
}
TINY = {
    "bert": Model("AutoModel", "BertConfig", SIZES | WORDS),
    "vit": Model("AutoModel", "ViTConfig", SIZES | {"image_size": 32, "patch_size": 8}),
    "llama": Model("AutoModelForCausalLM", "LlamaConfig", SIZES | WORDS),
    "t5": Model("AutoModelForSeq2SeqLM", "T5Config", T5 | WORDS),
    "whisper": Model("AutoModelForSpeechSeq2Seq", "WhisperConfig", WHISPER | {"vocab_size": 60} | {"pad_token_id": 0}),
}
LINES = (
    Line("bert", "forward", 32, batch=6, padding=True),
    Line("bert", "training step", 32),
    Line("vit", "forward", 17, batch=4),
    Line("llama", "decoding", 64),
    Line("llama", "generating", 32, new=3),
    Line("t5", "forward", 32),
    Line("whisper", "generating", 20, new=3),
)


def test_the_table_names_what_transformers_has():
    """A configuration ignores settings that it does not know, so a misspelled size would not be seen."""
    assert {line.model for line in families.LINES} == set(families.MODELS)
    assert {line.task for line in families.LINES} == set(families.TASKS)
    for model in families.MODELS.values():
        config = getattr(transformers, model.config)()
        assert hasattr(transformers, model.kind)
        assert [name for name in model.settings if not hasattr(config, name)] == []


def test_every_task_is_measured_and_the_lowest_ratio_is_first(monkeypatch):
    """Each line in each dtype, with fewer tokens and sequences; images and sound keep their size."""
    monkeypatch.setattr(families, "MODELS", TINY)
    found = families.measure(lambda _: None, BRIEF, LINES, shrink=2)
    order = [each.ratio for each in found]
    assert len(found) == 2 * len(LINES) and order == sorted(order)
    assert {each.name for each in found} == {
        "bert: 3 × 16, padding",
        "bert: 1 × 16",
        "vit: 2 × 17",
        "llama: a token after 32",
        "llama: 3 tokens after 16",
        "t5: 1 × 16",
        "whisper: 3 tokens after 20",
    }
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(report.ratios_table("families", found))
    text = console.export_text()
    assert "bert: 3 × 16, padding" in text and text.count("of 7 below 1") == 2 and text.count("of 3 below 1") == 2


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line}, {line.task}")
def test_a_wrong_result_ends_the_run(monkeypatch, line):
    """It is not timed."""
    right = families._model

    def wrong(name, dtype, implementation):
        model = right(name, dtype, implementation)
        if implementation == "regard":  # its weights are also SDPA's, so that its layers are what is wrong
            for each in model.modules():
                if isinstance(each, torch.nn.Linear):
                    each.register_forward_hook(lambda module, given, out: out * 1.1)
        return model

    monkeypatch.setattr(families, "MODELS", TINY)
    monkeypatch.setattr(families, "_model", wrong)
    monkeypatch.setattr(families, "interleaved", None)
    with pytest.raises(AssertionError, match=rf"{line}, {line.task}, float32: the error is"):
        families.measure(lambda _: None, BRIEF, (line,))


@pytest.mark.sweep
def test_both_models_have_the_same_weights():
    """In both dtypes, and each its own attention."""
    for dtype in families.DTYPES:
        ours, theirs = (families._model("Swin tiny", dtype, name) for name in ("regard", "sdpa"))
        assert (ours.config._attn_implementation, theirs.config._attn_implementation) == ("regard", "sdpa")
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
        assert {each.dtype for each in ours.parameters()} == {getattr(torch, dtype)}


def test_means_are_geometric_by_dtype_and_task():
    """The dtype as a whole is first."""
    found = [Timed("a", "float32", task, 1.0, sdpa) for task, sdpa in (("x", 0.5), ("x", 8.0), ("y", 2.0))]
    assert [tuple(mean) for mean in means(found)] == [
        ("float32", "all", pytest.approx(2), 1, 3),
        ("float32", "x", pytest.approx(2), 1, 2),
        ("float32", "y", pytest.approx(2), 0, 1),
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_made_of_the_figures(name):
    """From what the command saves, losses first, with the means."""
    found = [Timed("a", "float32", "forward", 0.002, 0.004), Timed("b", "bfloat16", "forward", 2.0, 1.0)]
    figures = json.loads(json.dumps(report.as_json(found)))
    text = page(name, "a machine", [Timed(**each) for each in figures])
    assert f"--cases {name}" in text and "Measured on a machine." in text
    assert "| float32 | all | 2.00 | 0 of 1 |" in text and "| bfloat16 | forward | 0.50 | 1 of 1 |" in text
    assert text.index("| b | bfloat16 | forward | 2 s | 1 s | 0.50 |") < text.index("| a | float32 | forward |")
    slower = [Timed("b", "bfloat16", "forward", 2.0, 4.0), Timed("a", "float32", "forward", 0.002, 0.001)]
    text = page(name, "a machine", found, slower)
    assert "Geometric means of 2 runs" in text and "| b | bfloat16 | forward | 2 s | 2 s | 1.00 | 0.50, 2.00 |" in text
