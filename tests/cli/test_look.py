"""`regard look` as a command: what its words mean, what it writes and where, and what it will not do."""

import base64
import dataclasses
import json
import os
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Run
from regard.lens.look import of_arrays
from tests.lens.minilm import with_minilm
from tests.support.command import done, refused, regard, until_ctrl_c
from tests.support.engines import normal
from tests.support.refusals import refusing

module = sys.modules["regard.cli.look"]  # the package has a function of this name

WORDS = ("[CLS]", "the", " animal", " sat", "</script>", "\x1b[31m", "[SEP]")


def recorded(folder, n=7, **rules):
    """A run of a toy of two layers in a folder."""
    tokens = WORDS if n == len(WORDS) else [f" {i}" for i in range(n)]
    runs = [of_arrays(*layer, mask=rg.causal(), tokens=tokens, **rules) for layer in normal(2, 2, 3, n, 8)]
    return Run("toy", "words", runs[0].axes, tuple(run.calls[0] for run in runs)).save(folder)


def refused_late(*arguments):
    """As `refused`, where a summary may have been printed before."""
    status, _, err = regard(*arguments)
    assert status == 2
    return err


def runs_of(page):
    """The data of the runs of a page."""
    packed = page.read_text().split('id="data">')[1].split("</script>")[0]
    return json.loads(zlib.decompress(base64.b64decode(packed)))["runs"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Everything happens in a folder with a recorded run, texts that are none, and folders."""
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "run")
    (tmp_path / "letter.txt").write_bytes("\ufeffDear Ada".encode())
    (tmp_path / "empty.txt").write_text("\ufeff \n\t ")
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "notes.html").write_text("<p>mine</p>")
    (tmp_path / "seen.PNG").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    (tmp_path / "model").mkdir()
    return tmp_path


# ---- what the words mean ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "image", "run", "model", "text"),
    [
        (["letter.txt"], None, None, None, "Dear Ada"),
        (["gpt2", "a text"], None, None, "gpt2", "a text"),
        (["./model", "letter.txt"], None, None, "./model", "Dear Ada"),
        (["run"], None, Path("run"), None, None),
        (["vit"], "notes.html", None, "vit", None),
        (["clip", "seen.PNG", "a dog"], None, None, "clip", "a dog"),
        (["clip", "a dog"], "notes.html", None, "clip", "a dog"),
        # Only what is a file, or looks like a path and nothing else, is read as one.
        *(
            ([text], None, None, None, text)
            for text in (
                "a text",
                "and/or",
                "3.14",
                "Hello.",
                "a\nb.txt c",
                "x" * 5000,
                "nul\0nul",
            )
        ),
    ],
)
def test_words_are_a_model_and_a_text(words, image, run, model, text):
    """One word is a text, a file or a recorded run; of two the first is the model; with an image one word is the
    model.
    """
    assert module._parse_words(*module._with_image(words, image and Path(image))) == (run, model, text)


@pytest.mark.parametrize("words", [["-"], [], ["gpt2", "-"]])
def test_a_text_comes_from_standard_input(words):
    """A dash, or no word at all, reads standard input, with the same rules as for a file."""
    assert "standard input contains no words" in refused("look", *words, input=b" \n")
    assert "not UTF-8: byte 1 of standard input" in refused("look", *words, input=b"a\xff")


PICKLED = b"\x80\x04cos\nsystem\n(S'touch harmed'\ntR."
REFUSED = [
    (["  "], "no text"),
    ([b"a\xff"], "not UTF-8: byte 1 of the argument"),
    (["empty.txt"], "empty.txt contains no words"),
    (["latin.txt"], "byte 3 of latin.txt"),
    (["nowhere.txt"], "No such file"),
    (["./nowhere"], "No such file"),
    (["folder"], "Is a directory"),
    (["The", "animal", "sat"], "put the text in quotes"),
    (["/tmp/my text.txt"], "through standard input"),
    *((["words", "--layers", text], "invalid --layers") for text in ("", "5-3", "1,,2")),
    # Nothing is written over, and this is told before a model is loaded.
    (["words", "--out", "notes.html"], "not a page of regard"),
    (["words", "--out", "folder"], ": a folder"),
    (["words", "--out", "no/page.html"], "no folder"),
    (["words", "--save", "folder", "--force"], "the folder contains other files"),
    (["words", "--save", "run"], "the folder contains a run"),
    (["model", "--picture", "photo.png"], "the image file does not exist"),
    (["words", "--limit", "many"], "not a size in bytes"),
    (["words", "--compare", "folder"], "without a recorded run or a model"),
    (["words", "--serve", "--out", "a.html"], "--out has no effect with --serve"),
    (["words", "--force"], "--force has no effect without --save"),
    (["./nowhere", "words"], "no such model"),
    (["model", "words"], "not a model folder"),
]


def test_what_is_wrong_is_refused_and_nothing_is_written(here):
    """Blanks, empty and broken files, paths to nothing, folders, a sentence without quotes, files that are no pages,
    options without an effect.
    """
    import transformers  # noqa: F401, without which it is skipped

    before = {path: path.is_file() and path.read_bytes() for path in here.rglob("*")}
    for words, sentence in REFUSED:
        assert sentence in refused("look", *words), words
    assert {path: path.is_file() and path.read_bytes() for path in here.rglob("*")} == before


def test_options_that_would_change_nothing_are_refused_together():
    """Options of recording with a run that is recorded, of serving without a server: every reason at once."""
    options = {"--layers": "0", "--generate": "3", "--target": "x", "--save": "copy", "--port": "80"}
    options |= {"--picture": "a.png", "--limit": "1GB"}
    message = refused_late("look", "run", *(part for pair in options.items() for part in pair))
    assert all(f"{name} has no effect" in message for name in options) and message.count("\n") == len(options)


@pytest.mark.parametrize(
    "text, layers",
    [("0", [0]), ("0,3-5", [0, 3, 4, 5]), (" 1 , *.attn,2-2", [1, "*.attn", 2]), ("h.1.attn", ["h.1.attn"])],
)
def test_layers_are_numbers_spans_and_names(text, layers):
    """0,3-5 is what it looks like; other words are names or patterns."""
    assert module._parse_layers(text) == layers


def test_damaged_runs_are_refused(here):
    """A run that broke off, or whose files are damaged, is a sentence."""
    os.truncate(here / "run" / "call-001.safetensors", 9)
    assert "not a safetensors file" in refused("look", "run")
    (here / "run" / "run.json").unlink()
    assert "interrupted recording" in refused("look", "words", "--compare", "run")
    assert "interrupted recording" in refused("look", "run")
    for call in (rg.look, rg.audit):
        with refusing("an interrupted recording"):
            call("run")


# ---- what it shows ---------------------------------------------------------------------------------------------------


def test_a_recorded_run_is_shown_and_written_as_a_page(here):
    """The summary names the model, the page lies where it was asked for, and a page of regard's is written over."""
    out = done("look", "run")
    assert "toy · 2 attention calls × 3 heads" in out and "Page written to attention.html" in out
    assert "\x1b[31m" not in out
    html = (here / "attention.html").read_text()
    assert html.startswith("<!doctype html>") and html.count("</script>") == html.count("<script")
    done("look", "run", "--layer", "1", "--head", "2", "--token", "animal", "--out", "attention.html")
    start = {"call": 1, "head": 2, "query": 2, "why": "the requested head"}
    assert runs_of(here / "attention.html")[0]["start"] == start
    assert "no such" in refused_late("look", "run", "--head", "3")


def test_two_runs_are_compared(here):
    """A second run is in the page too, also one of another length, and the terminal says what differs most; a text
    needs a model that reads it.
    """
    recorded(here / "b", score=rg.softcap(1.0))
    recorded(here / "c", n=9)
    ours, theirs = (np.stack([call.weights() for call in rg.look(name).calls]) for name in ("run", "b"))
    apart = np.abs(theirs - ours).sum(-1) / 2
    call, head, row = np.unravel_index(apart.argmax(), apart.shape)
    told = rf"most: layer {call}, head {head}: “\S+” \({row}\) by {apart.max():.1%} of its weight; on “.*?” \(\d\) from"
    for other, n, said in (("b", 7, told), ("c", 9, r"most: layer \d, head \d: on the")):
        assert re.search(said, " ".join(done("look", "run", "--compare", other).split()))
        assert [run["calls"][0]["Q"] for run in runs_of(here / "attention.html")] == [7, n]
    assert "the model of this run is not known" in refused_late("look", "run", "--compare", "other words")


def test_a_run_too_long_for_a_page_is_served(here, monkeypatch):
    """Nothing is lost: the summary and the command that serves the run are shown, and no page is written."""
    (here / "run").rename("a run")
    monkeypatch.setattr("regard.lens.viewer.embed.fits", lambda run: False)
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail(f"{address} is not there"))
    out = done("look", "a run", "--open")
    assert "too long for one page" in out and "regard look 'a run' --serve" in out
    assert not (here / "attention.html").exists()
    assert "regard look 'a run' --compare 'a run' --serve" in done("look", "a run", "--compare", "a run")
    assert "too long for one page" in refused_late("look", "a run", "--out", "a.html")


def test_it_serves_until_ctrl_c():
    """`--serve` tells an address that answers with the page; Ctrl-C ends the command with status 0 and no traceback."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    assert until_ctrl_c("look", "run", "--serve")[1].startswith(b"<!doctype html>")


# ---- with a model ----------------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_read_safely_is_refused(here):
    """A folder whose weights are pickled: nothing is unpickled."""
    import transformers  # noqa: F401, without which it is skipped

    (here / "model" / "config.json").write_text('{"model_type": "bert"}')
    (here / "model" / "pytorch_model.bin").write_bytes(PICKLED)
    assert "pickle files can run code" in refused("look", "model", "words", "--save", "copy")
    assert not (here / "harmed").exists() and not (here / "copy").exists() and not (here / "attention.html").exists()


@with_minilm
def test_a_text_is_recorded_and_looked_at_again(here):
    """From a text to a folder and a page; the folder is the same run again, and `--force` alone writes over it."""
    import transformers  # noqa: F401, without which it is skipped

    out = done("look", "The animal sat.", "--layers", "0,2", "--save", "new", "--layer", "1", "--head", "3")
    assert "To show it again: regard look new" in " ".join(out.split())
    assert [call.layer for call in Run.open("new", verify=True).calls] == [0, 2]
    assert (here / "attention.html").is_file()
    assert "limit" in refused("look", "Other words.", "--save", "new", "--force", "--limit", "1kB")
    assert Run.open("new", verify=True).text == "The animal sat."
    done("look", "Other words.", "--save", "new", "--force")
    assert Run.open("new", verify=True).text == "Other words."


@with_minilm
def test_the_head_that_matters_most_is_shown_first(here):
    """`--effects heads` ranks as `effects` does, and a saved run keeps it."""
    text = "The animal was tired."
    out = done("look", text, "--effects", "heads", "--save", "new")
    effects = rg.effects(None, text)
    layer, head = effects.most
    assert str(effects) in out and f"without it, cosine changes most: by {effects.values[layer, head]:+.3g}" in out
    assert str(effects.ranked(1)[0][0]) == f"{effects.layers[layer]} head {head}"
    assert str(effects) in done("look", "new")
    patched = rg.effects(None, text, of="stream", source="The people were happy.")
    assert str(patched) in done("look", text, "--source", "The people were happy.")
    assert "--source" in refused("what-if", text, "--source", "The people were happy.")


def test_what_is_wrong_is_said_in_the_terminal_and_on_the_page(here):
    """A run whose weights stand where the mask forbids them is shown with the fault that the audit names."""
    rg.look(weights=np.full((1, 4, 4), 0.25), mask=np.tri(4, dtype=bool)).save("wrong")
    shown = done("look", "wrong")
    assert "fault weights" in shown and "fix mask the scores" in " ".join(shown.split())
    assert "'check': 'weights'" in str(runs_of(here / "attention.html"))


def test_foreign_names_do_not_act_on_the_terminal(here):
    """Names of a foreign run, and words of a foreign model's configuration, are shown as signs, whether it is shown or
    refused. In cross-attention there is no own position: what counts from it is left out.
    """
    import transformers  # noqa: F401, without which it is skipped

    evil = "a\x1b]0;pwned\x07\x1b[2J"
    (call,) = rg.look(np.ones((1, 3, 8)), k=np.ones((1, 4, 8))).calls
    crossed = dataclasses.replace(call, name=evil, queries=evil, keys="source")
    Run(evil, "", {evil: Axis.of(3, None, evil), "source": Axis.of(4, None, "source")}, (crossed,)).save("evil")
    shown = done("look", "evil")
    assert "\x1b" not in shown and "most on the first key" in shown and "distance" not in shown

    (here / "model" / "config.json").write_text(json.dumps({"model_type": evil}))
    (here / "model" / "model.safetensors").write_bytes(b"")
    err = refused("look", "model", "hi")
    assert "pwned" in err and "\x1b" not in err


def test_a_run_is_a_line_at_the_prompt():
    """A run and its calls say in a line what they are, whatever the arrays hold."""
    run = rg.look(*np.ones((1, 2, 50, 8)), k=np.ones((1, 60, 8)))
    assert repr(run) == "<Run of arrays: 1 call; queries of 50, keys of 60>"
    assert repr(run.calls[0]) == "<Call 'attention': 50 queries × 60 keys, 2 heads over 1>"


@with_minilm
def test_a_text_alone_is_a_text_for_the_default_model():
    """`look("a text")` is what the command `regard look "a text"` shows; the same string can be a file's path."""
    run, same = rg.look("The animal sat."), rg.look(None, "The animal sat.")
    assert (run.model, run.text, run.facts["made"]) == (same.model, same.text, same.facts["made"])
    np.testing.assert_array_equal(run.calls[3].weights(), same.calls[3].weights())
    Path("run").rename("a run")
    assert rg.look("a run").model == "toy"


@with_minilm
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "Hello"}, r"nothing to run.*if 'Hello' is the text: look\(None, 'Hello'\)"),
        ({"model": "a cat", "text": "a dog"}, r"a text in the place of the model.*look\('a cat', text='a dog'\)"),
        ({"model": "a cat", "picture": "cat.png"}, "a text in the place of the model"),
        *(({"model": path}, "a text or a path.*begins like a path") for path in ("./my model", "~/my model", "/a b")),
        ({"model": "long " * 5000}, "the text is too long for the model"),
    ],
)
def test_what_may_be_a_text_or_a_model_is_refused(arguments, words):
    """A word, two inputs, and what begins like a path: each refusal says how to write what was meant."""
    with refusing(words):
        rg.look(arguments.pop("model"), **arguments)


def test_without_the_default_model_a_text_needs_a_model(monkeypatch):
    """The refusal names the package and how to install it; the name of another model is the other way."""
    monkeypatch.setattr("regard.common.default_model.PACKAGE", "no_such_package")
    with refusing(r"the default model is not installed.*pip install .*or name a model"):
        rg.look("a text")
    assert "the default model is not installed" in refused("look", "a text")
