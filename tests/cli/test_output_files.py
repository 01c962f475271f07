"""What commands write: a user's own files and folders that cannot be written are refused before the work."""

from pathlib import Path

import pytest

from regard import Refused
from regard.common.files.output import FIGURE, check_output, replacing, written_by_regard
from tests.support.command import done, refused, regard

MINE = "the only copy of my notes"
CONFIG = '{"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 32}'
COMMANDS = {
    "look": (["look", "Hello there.", "--out", "{}"], "html"),
    "cost": (["cost", "{config}", "--over", "8,16", "--plot", "{}"], "png"),
    "plan": (["plan", "--tokens", "4096", "--ranks", "2", "--out", "{}"], "json"),
    "figure": (["plan", "--tokens", "4096", "--ranks", "2", "--figure", "{}"], "svg"),
    "figure as PNG": (["plan", "--tokens", "4096", "--ranks", "2", "--figure", "{}"], "png"),
    "figure as PDF": (["plan", "--tokens", "4096", "--ranks", "2", "--figure", "{}"], "pdf"),
    "slides": (["learn", "--slides", "1", "--out", "{}"], "html"),
}


def words(command, path, folder):
    """Those of a command that writes to a path."""
    config = folder / "config.json"
    config.write_text(CONFIG)
    return [word.format(path, config=config) for word in COMMANDS[command][0]]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("look", "slides")])
def test_a_file_of_regard_is_replaced(command, tmp_path):
    """The same command twice, first over an empty file; nothing else is left in the folder."""
    path = tmp_path / f"written.{COMMANDS[command][1]}"
    path.touch()
    for _ in range(2):
        done(*words(command, path, tmp_path))
        assert path.stat().st_size > 500
    assert {each.name for each in tmp_path.iterdir()} == {path.name, "config.json"}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("folder", ["/proc", "no/where", "mine", "long" * 99, "."])
def test_what_cannot_be_written(command, folder, tmp_path):
    """A file that regard did not write is neither replaced nor emptied; nor is a folder that cannot hold files, also by
    root, whom modes do not stop: /proc takes no files.
    """
    path = tmp_path / folder / f"notes.{COMMANDS[command][1]}"
    mine = path if folder == "." else tmp_path / "mine"
    mine.write_text(MINE)

    message = refused(*words(command, path, tmp_path))

    assert ("the file exists and is not" if folder == "." else "cannot be written") in message and str(path) in message
    assert mine.read_text() == MINE


@pytest.mark.spread
@pytest.mark.parametrize("option", ["--site", "--notebooks", "--scripts"])
@pytest.mark.parametrize("place", ["/proc/course", "mine/course", "long" * 99, "mine"])
def test_a_course_that_cannot_be_written(option, place, tmp_path):
    """Refused before a chapter runs."""
    (tmp_path / "mine").write_text(MINE)

    assert "cannot be written" in refused("learn", option, tmp_path / place)
    assert (tmp_path / "mine").read_text() == MINE


def test_a_failure_keeps_the_old_file(tmp_path):
    """A full disk, or any other error while writing, leaves the earlier file, and no draft."""
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(Refused, match="No space left"), replacing("look", "--out", path) as draft:
        draft.write_text("half of a p")
        raise OSError(28, "No space left on device")
    with pytest.raises(ZeroDivisionError), replacing("look", "--out", path) as draft:
        draft.write_text(str(1 / 0))

    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_links_and_devices(tmp_path):
    """A link stays one, and its target is replaced; /dev/null is written and stays a device."""
    target, link = tmp_path / "target.svg", tmp_path / "link.svg"
    target.write_text(f"<svg>{FIGURE}</svg>")
    link.symlink_to(target)
    for path in (link, "/dev/null"):
        status, _, err = regard(*words("figure", path, tmp_path))
        assert status == 0 or "the form is unknown" in err
    done(*words("plan", "/dev/null", tmp_path))

    assert not written_by_regard(tmp_path / "config.json")
    assert link.is_symlink() and target.stat().st_size > 5000
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        check_output("plan", "--figure", link, what="a figure", mark=FIGURE)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
