"""The learner's folder: nothing of the learner's is overwritten. (That no start passes: test_chapters.)"""

from regard.learn.folder import put_aside, starts
from regard.learn.source import chapters

THREE = chapters()[3]


def test_files_are_kept(tmp_path):
    """A file is written once, and stays as the learner left it; a reset keeps it, also twice in the same second."""
    kept, exercise = [], THREE.exercises[0]
    for content in ("first", "second", "third"):
        path = starts(tmp_path, exercise)
        assert path.read_text() == exercise.start
        path.write_text(content)
        assert starts(tmp_path, exercise).read_text() == content
        kept += put_aside(tmp_path, THREE)
        assert not path.exists()

    assert [path.read_text() for path in kept] == ["first", "second", "third"] and len(set(kept)) == 3
