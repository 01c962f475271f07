"""`regard look` over many texts: which words are texts, what is printed, and which options have no effect."""

import io
import json

import numpy as np
import pytest

import regard as rg
from regard.cli.look import several
from regard.language.expr import key, query
from regard.lens import detect_heads
from tests.cli.test_look import runs_of
from tests.lens.minilm import with_minilm
from tests.support.command import done, refused, regard

TEXTS = {"one.txt": "the more the merrier", "two.txt": "a cat and a dog\nand a cat", "three.txt": "no word repeats"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Everything happens in a folder with texts, lines, a recorded run and a folder like that of a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "texts" / name).write_text(text)
    (tmp_path / "texts" / "table.csv").write_text("not a text")
    (tmp_path / "lines.txt").write_text("the more the merrier\r\n\n a cat and a dog\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "vocab.txt").write_text("words")
    rg.look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4))).save(tmp_path / "run")
    return tmp_path


NAMES = ["texts/one.txt", "texts/three.txt", "texts/two.txt"]
PAIRS = [("lines.txt:1", "the more the merrier"), ("lines.txt:3", " a cat and a dog")]


@pytest.mark.parametrize(
    ("words", "options", "expected"),
    [
        (["texts"], {}, (None, NAMES)),
        (["gpt2", "texts"], {}, ("gpt2", NAMES)),
        (["model", "texts", "lines.txt"], {}, ("model", [*NAMES, "lines.txt"])),
        (NAMES[:2], {}, (None, NAMES[:2])),
        (["lines.txt"], {"lines": True}, (None, PAIRS)),
        (["gpt2", "lines.txt"], {"lines": True, "as_json": True}, ("gpt2", PAIRS)),
        (["a  text"], {"as_json": True}, (None, [("a text", "a  text")])),
        (
            ["gpt2", "lines.txt"],
            {"as_json": True},
            ("gpt2", [("lines.txt", "the more the merrier\r\n\n a cat and a dog\n")]),
        ),
        # One text, a run, and words without files are not many texts.
        *((words, {}, None) for words in (["a text"], ["lines.txt"], ["gpt2", "lines.txt"], ["model", "a text"], [])),
        *((words, {}, None) for words in (["The", "cat", "sat"], ["run"], ["model"], ["gpt2", "model"])),
    ],
)
@with_minilm
def test_which_words_are_many_texts(words, options, expected):
    """A folder of .txt files, several files, or lines; the first word is the model, unless it is a text, too."""
    found = several(words, **{"lines": False, "as_json": False, **options})
    texts = found and [text if isinstance(text, tuple) else str(text) for text in found.texts]
    assert expected == (found and (found.model, texts))


def test_lines_of_standard_input(monkeypatch):
    """Each is named by its number."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one text\n\nanother\n")))
    assert several(["-"], lines=True, as_json=False).texts == [("line 1", "one text"), ("line 3", "another")]


OPTIONS = {"--out": "a.html", "--save": "r", "--port": "80", "--compare": "run", "--generate": "3", "--target": "x",
           "--picture": "p.png", "--layer": "0", "--head": "0", "--token": "x"}  # fmt: skip
FLAGS = ["--serve", "--force", "--open"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["gpt2", "texts", "gone.txt", "model", "lost.txt"],
            ["gone.txt: no such file", "lost.txt", "model: a folder without .txt files"],
        ),
        (["gpt2", "texts", "--lines"], ["--lines reads one file"]),
        *((["run", option], [f"{option} has no effect on a recorded run"]) for option in ("--json", "--lines")),
        (["run", "--measure", "own=key == 1"], ["--measure has no effect on a recorded run"]),
        (
            ["texts", *(part for pair in OPTIONS.items() for part in pair), *FLAGS],
            [f"{name} has no effect on the detectors of many texts" for name in (*OPTIONS, *FLAGS)],
        ),
        (["texts", "--measure", "own"], ["invalid --measure"]),
    ],
)
def test_what_is_wrong_is_refused_at_once(words, said):
    """Missing files, folders without texts, and options without an effect are all named before a model is loaded."""
    status, out, err = regard("look", *words)
    assert (status, out) == (2, "") and all(each in err for each in said), err


def test_the_tables(here):
    """In a pipe of 80 columns, of the chosen layers and own measures, with what was left out. (What stands in them:
    tests/lens/test_detection.py.)
    """
    (here / "texts" / "bad.txt").write_bytes(b"\xff")
    words = ["look", "texts/", "--layers", "0,2", "--measure", "two_back=key == query - 2"]
    lines = done(*words, COLUMNS="").splitlines()
    assert "24 heads · 3 texts" in lines[0] and max(map(len, lines)) <= 80
    at = lines.index("every head: mean ± standard deviation over the texts, in %")
    assert lines[at + 1].split() == ["head", "previous", "duplicate", "induction", "first", "itself", "two_back"]
    assert [line.split()[0] for line in lines[at + 2 : at + 26]] == [f"{i}.{j}" for i in (0, 2) for j in range(12)]
    assert lines[-2] == "1 text left out" and "texts/bad.txt: the file is not UTF-8" in lines[-1]


@with_minilm
def test_json_is_the_result(here):
    """What `to_json` returns, and nothing else on standard output; also of one text."""
    for words, texts in (
        (["texts", "--layers", "0,2"], [here / "texts" / name for name in sorted(TEXTS)]),
        (["a cat and a dog", "--layers", "0,2"], ["a cat and a dog"]),
    ):
        out = done("look", *words, "--json")
        expected = detect_heads(None, texts, layers=[0, 2]).to_json()
        assert json.dumps(json.loads(out)).replace("texts/", f"{here}/texts/") == json.dumps(expected)


@with_minilm
def test_nothing_is_printed_where_no_text_can_be_read(here):
    """Every unreadable file is in the refusal, with status 2."""
    (here / "bad").mkdir()
    (here / "bad" / "a.txt").write_bytes(b"\xff")
    (here / "bad" / "b.txt").write_text(" ")
    status, out, err = regard("look", "bad")
    assert (status, out) == (2, "") and "bad/a.txt: byte 0" in err and "bad/b.txt: no words" in err


@with_minilm
def test_a_measure_of_one_text_is_on_the_page(here):
    """The figures of the page and of the terminal have the own measure."""
    out = done("look", "a cat and a dog", "--layers", "0", "--measure", "two_back=key == query - 2")
    assert "two_back" in out and "'two_back'" in str(runs_of(here / "attention.html"))


@with_minilm
def test_a_measure_goes_with_another_text_of_the_served_page(here, monkeypatch):
    """The texts that are typed there have the figure, too."""
    served = {}
    monkeypatch.setattr("regard.lens.viewer.server.serve", lambda run, other, **given: served.update(given, run=run))
    done("look", "a cat and a dog", "--serve", "--layers", "0", "--measure", "two_back=key == query - 2")
    typed = served["record"]("the more the merrier")
    alone = rg.look(None, "the more the merrier", layers=[0], measures={"two_back": key == query - 2})
    assert len(typed.calls) == len(served["run"].calls) == 1
    np.testing.assert_array_equal(typed.calls[0].figures["two_back"], alone.calls[0].figures["two_back"])
    assert "two_back" in served["run"].calls[0].figures


def test_a_trained_model_and_many_texts(here):
    """A folder of `regard train` is a model: its scores over texts, and with --json it needs a text."""
    import torch

    from regard.models import Config, LanguageModel
    from regard.models.data.vocabulary import Bytes
    from regard.models.training import checkpoint

    torch.manual_seed(0)
    model = LanguageModel(Config(vocabulary=257, d_model=16, layers=2, heads=2))
    checkpoint.save(here / "trained", model, vocabulary=Bytes())
    found = json.loads(done("look", "trained", "texts", "--json"))
    assert (found["model"], found["texts"], len(found["heads"])) == ("trained", 3, 4)
    runs = [rg.look("trained", text) for text in TEXTS.values()]
    expected = np.mean([run.calls[1].figures["previous"] for run in runs], 0)
    shown = [head["scores"]["previous"]["mean"] for head in found["heads"][2:]]
    np.testing.assert_allclose(shown, expected, rtol=1e-12)
    assert "--json needs a text" in refused("look", "trained", "--json")
