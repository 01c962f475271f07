"""The learner's folder: nothing of the learner's is overwritten. (That no start passes: test_chapters.)"""

from regard.learn.folder import put_aside, starts
from regard.learn.source import chapters

THREE = chapters()[3]


def test_a_file_is_written_once(tmp_path):
    """The second time, it stays as the learner left it."""
    exercise = THREE.exercises[0]
    path = starts(tmp_path, exercise)
    assert path.read_text() == exercise.start
    path.write_text("mine")

    assert starts(tmp_path, exercise) == path and path.read_text() == "mine"


def test_files_are_put_aside(tmp_path):
    """A reset keeps them, also the second time in the same second."""
    kept = []
    for content in ("first", "second", "third"):
        path = starts(tmp_path, THREE.exercises[0])
        path.write_text(content)
        kept += put_aside(tmp_path, THREE)
        assert not path.exists()

    assert [path.read_text() for path in kept] == ["first", "second", "third"] and len(set(kept)) == 3
