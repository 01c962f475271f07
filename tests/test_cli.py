"""The command line around `look`: where the text comes from, and one clear sentence for whatever is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = str(Path(__file__).parents[1] / "src")


def regard(*arguments, input=None, cwd=None, **environment):
    """Runs the command in a process of its own -> (status, stdout, stderr)."""
    done = subprocess.run([sys.executable, "-m", "regard", *arguments], input=input, cwd=cwd, capture_output=True, timeout=120,
                          stdin=subprocess.DEVNULL if input is None else None,
                          env={**os.environ, "PYTHONPATH": SRC, "HF_HUB_OFFLINE": "1", **environment})  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(*arguments, **more) -> str:
    """The one sentence of a command that is refused with status 2."""
    status, out, err = regard(*arguments, **more)
    assert (status, out) == (2, ""), err
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    return err


def test_help_is_there_and_light():
    """`regard --help` lists the commands, and loads neither torch nor the compiler for it."""
    status, out, _ = regard("--help")
    assert status == 0
    assert "look" in out and "bench" in out
    code = "import sys; from regard.cli import app; print(sorted({'torch', 'transformers', 'llvmlite'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONPATH": SRC}, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_no_text_is_refused(tmp_path):
    """An empty argument, an empty file, blanks, and an empty standard input are each refused."""
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b"")
    blank = tmp_path / "blank.txt"
    blank.write_text("\ufeff \n\t ")
    for arguments, input in ((("look", ""), None), (("look", "  "), None), (("look", "--file", str(empty)), None),
                             (("look", "--file", str(blank)), None), (("look", "-"), b""), (("look",), b"\n")):  # fmt: skip
        assert "no text" in refused(*arguments, input=input, cwd=tmp_path)


def test_two_texts_are_refused(tmp_path):
    """A text and a file at once are refused, rather than one of them ignored."""
    assert "two texts" in refused("look", "words", "--file", "x.txt", cwd=tmp_path)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    """A file that is not there, a folder, and bytes that are not UTF-8 are refused by name."""
    assert "nowhere.txt: No such file" in refused("look", "--file", "nowhere.txt", cwd=tmp_path)
    assert "Is a directory" in refused("look", "--file", str(tmp_path), cwd=tmp_path)
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    assert "not UTF-8: byte 3 of latin.txt" in refused("look", "--file", "latin.txt", cwd=tmp_path)
    assert "not UTF-8: byte 1 of standard input" in refused("look", "-", input=b"a\xff", cwd=tmp_path)
    assert "not UTF-8: byte 1 of the argument" in refused("look", b"a\xff", cwd=tmp_path)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    """A folder, a missing folder and a file that is not a page are refused before a model is loaded, and left as they are."""
    assert "is a folder" in refused("look", "words", "--out", str(tmp_path))
    assert "no folder" in refused("look", "words", "--out", str(tmp_path / "no" / "page.html"))
    notes = tmp_path / "notes.html"
    notes.write_text("<p>mine</p>")
    assert "a file is in the way" in refused("look", "words", "--out", str(notes))
    assert notes.read_text() == "<p>mine</p>"


@pytest.mark.parametrize("model", ["./nowhere", "/nowhere/at/all", "a/b/c", "~/nowhere-at-all", " "])
def test_a_model_folder_that_is_not_there_is_refused(model, tmp_path):
    """What can only be a folder and is none is refused without asking anyone else."""
    assert "no such model" in refused("look", "words", "--model", model, cwd=tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    """A folder without config.json, and one whose weights are pickled, are refused; nothing is unpickled."""
    assert "not a model folder" in refused("look", "words", "--model", str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'touch harmed'\ntR.")
    assert "pickled" in refused("look", "words", "--model", str(tmp_path), cwd=tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_wrong_options_are_explained():
    """An option that does not exist, or a number that is none, gets the command's own explanation and status 2."""
    for arguments in (("look", "words", "--hed", "1"), ("look", "words", "--head", "one"), ("lok",)):
        status, _, err = regard(*arguments)
        assert status == 2
        assert "Traceback" not in err
        assert "Error" in err or "No such" in err
