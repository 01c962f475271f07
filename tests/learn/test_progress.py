"""The learner's folder: nothing of the learner's is overwritten, and progress survives a killed process, two terminals
at once, and damaged files.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import regard as rg
from regard.learn.folder import changing, put_aside, read, starts
from regard.learn.source import chapters
from tests.support.waiting import HANG

COUNT = """
import sys
from pathlib import Path
from regard.learn.folder import changing
for number in range(int(sys.argv[3])):
    with changing(Path(sys.argv[1])) as progress:
        progress.exercise(f"3/{sys.argv[2]}")["tries"] += 1
    print(number, flush=True)
"""


def counting(folder, name, times):
    """A process that notes this many tries."""
    return subprocess.Popen(
        [sys.executable, "-c", COUNT, str(folder), name, str(times)], stdout=subprocess.PIPE, text=True
    )


def test_two_terminals_at_once(tmp_path):
    """No change is lost."""
    processes = [counting(tmp_path, name, 60) for name in "ab"]
    for process in processes:
        process.communicate(timeout=HANG)
        assert process.returncode == 0

    assert {key: each["tries"] for key, each in read(tmp_path).exercises.items()} == {"3/a": 60, "3/b": 60}


def test_a_killed_process_loses_nothing(tmp_path):
    """Whenever it is killed, what it had noted is there, and the next process can write."""
    for attempt in range(4):
        process = counting(tmp_path, str(attempt), 10_000)
        for _ in range(3 + 2 * attempt):
            last = int(process.stdout.readline())
        time.sleep(0.002 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=HANG)
        assert read(tmp_path).exercises[f"3/{attempt}"]["tries"] > last
    with changing(tmp_path) as progress:
        progress.current = 1

    assert read(tmp_path).current == 1
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".json")]) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 7}', "null", "\x00"])
def test_a_damaged_file_is_refused_and_kept(tmp_path, content):
    """It is neither read as empty nor overwritten."""
    (tmp_path / "progress.json").write_text(content)
    with pytest.raises(rg.Refused) as refused, changing(tmp_path):
        pass

    assert "progress" in refused.value.reasons[0].what
    assert (tmp_path / "progress.json").read_text() == content


def test_an_error_inside_writes_nothing(tmp_path):
    """A change is noted as a whole or not at all."""
    with changing(tmp_path) as progress:
        progress.current = 2
    with pytest.raises(ZeroDivisionError), changing(tmp_path) as progress:
        progress.current = 1 // 0

    assert json.loads((tmp_path / "progress.json").read_text())["current"] == 2


def test_a_chapter_is_forgotten_alone(tmp_path):
    """Chapter 1 is not chapter 11."""
    with changing(tmp_path) as progress:
        for key in ("1/a", "11/a"):
            progress.answered(key, "x", True)
            progress.exercise(key)
        progress.forget(1)

    assert [*progress.answers] == [*progress.exercises] == ["11/a"]


def test_files_are_kept(tmp_path):
    """A file is written once, and stays as the learner left it; a reset keeps it, also twice in the same second."""
    chapter = chapters()[3]
    kept, exercise = [], chapter.exercises[0]
    for content in ("first", "second", "third"):
        path = starts(tmp_path, exercise)
        assert path.read_text() == exercise.start
        path.write_text(content)
        assert starts(tmp_path, exercise).read_text() == content
        kept += put_aside(tmp_path, chapter)
        assert not path.exists()

    assert [path.read_text() for path in kept] == ["first", "second", "third"] and len(set(kept)) == 3
