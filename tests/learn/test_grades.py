"""`regard learn --grade`: folders, whole, half done, empty, shown and damaged, and what is said of each exercise."""

import csv
import io
import json

import pytest

from regard.learn.folder import changing
from regard.learn.source import chapters, read_chapter
from regard.learn.teacher import COLUMNS, as_csv, grades, of_chapters, summary
from tests.support.command import done, refused, regard
from tests.support.refusals import reasons_of, refusing

from .chapter_files import HEAD, SCORES, chapter

OTHER = "import numpy as np\n\n\ndef scores(a, b):\n    return np.einsum('id,jd->ij', a, b) * a.shape[1] ** -0.5\n"


@pytest.fixture
def course(tmp_path, here):
    """A chapter with one exercise."""
    return [chapter(tmp_path, SCORES)]


def learner(folder, course, code, **noted):
    """A folder with this file, and what its progress notes of the exercise."""
    folder.mkdir(parents=True)
    exercise = course[0].exercises[0]
    if code is not None:
        (folder / exercise.file_name).write_text(code, "latin-1")
    if noted:
        with changing(folder) as progress:
            progress.exercise(exercise.key).update(noted)
    return folder


def test_folders_of_every_kind(tmp_path, course):
    """Each kind of folder is said to be what it is, whatever the others are."""
    exercise = course[0].exercises[0]
    kinds = {
        "shown": (exercise.solution, {"tries": 1, "hints": 2, "shown": True}, ("passed", (), True, False)),
        "copied": ("# mine\n" + exercise.solution, {}, ("passed", (), False, True)),
        "own-mistake": (exercise.wrong[1].code, {}, ("not right", ("keys-not-transposed",), False, False)),
        "no-text": ("\xff\xfe\x00def", {}, ("not right", (), False, False)),
        "untouched": (exercise.start, {}, ("not begun", (), False, False)),
        "empty": (None, {}, ("not begun", (), False, False)),
    }
    made = {learner(tmp_path / name, course, code, **noted): noted for name, (code, noted, _) in kinds.items()}

    found = grades(list(made), course)

    assert [each.folder for each in found] == list(made)
    for each, noted in zip(found, made.values()):
        (grade,) = each.grades
        assert (grade.result, grade.mistakes, grade.shown, grade.is_solution) == kinds[each.name][2], each.name
        assert (grade.tries, grade.hints) == (noted.get("tries", 0), noted.get("hints", 0))
        assert bool(grade.problem) == (grade.result == "not right")


@pytest.mark.parametrize(
    "damage",
    ["{", '{"version": 1, "exercises": [1]}', '{"version": 1, "answers": {"3/a": 7}}',
     '{"version": 1, "exercises": {"3/scores": {"tries": "two"}}}'],
)  # fmt: skip
def test_a_damaged_progress_is_said_and_the_files_are_graded(tmp_path, course, damage):
    """A learner's file counts even if the notes on it are lost; the course itself refuses such a file."""
    folder = learner(tmp_path / "a", course, OTHER)
    (folder / "progress.json").write_text(damage)

    (found,) = grades([folder], course)

    assert found.problem and found.grades[0].result == "passed"
    refused("learn", folder, "--list")


def test_folders_that_do_not_exist_are_named_before_anything_runs(tmp_path, course):
    """All of them at once, and a file among them: `class/*` gives it, `class/*/` does not."""
    folder = learner(tmp_path / "a", course, OTHER)
    (tmp_path / "notes.txt").touch()
    with refusing(r"nothing to grade.*/b, .*notes\.txt is a file.*class/\*/"):
        grades([folder, tmp_path / "b", tmp_path / "notes.txt"], course)
    with refusing("no folder"):
        grades([], course)


def test_a_file_that_cannot_be_read_is_said(tmp_path, course):
    folder = tmp_path / "a"
    (folder / course[0].exercises[0].file_name).mkdir(parents=True)
    assert "cannot be read" in grades([folder], course)[0].grades[0].problem


def test_names_are_what_distinguishes_the_folders(tmp_path, course):
    """The common beginning and end of the paths are left out; something is always left."""
    many = [learner(tmp_path / name / "attention-course", course, None) for name in ("ann", "bob")]
    assert [each.name for each in grades(many, course)] == ["ann", "bob"]
    assert [each.name for each in grades(many[:1], course)] == ["attention-course"]


def test_tables_have_a_row_for_each_learner(tmp_path, course):
    """Text, CSV and JSON say the same; a name that a spreadsheet would compute does not begin with its sign."""
    folders = [
        learner(tmp_path / "=1+2", course, OTHER, tries=1),
        learner(tmp_path / "b", course, course[0].exercises[0].wrong[0].code, tries=4, shown=True),
    ]
    found = grades(folders, course)
    (number, rows), *others = of_chapters(found)

    assert (number, others, len(rows)) == (3, [], 3)
    assert rows[1][1] == "passed, 1 try" and rows[2][1] == "scale-missing, solution shown, 4 tries"
    assert [row[1] for row in summary(found)] == ["passed", "1 of 1", "0 of 1"]
    parsed = list(csv.DictReader(io.StringIO(as_csv(found), newline="")))
    assert [tuple(row) for row in parsed] == [COLUMNS] * 2
    assert [row["learner"] for row in parsed] == ["'=1+2", "b"] and parsed[1]["mistakes"] == "scale-missing"


def test_the_command_prints_text_json_and_csv(tmp_path, monkeypatch, here):
    """Chapters can be chosen; the numbers are those of the functions."""
    course = [each for each in chapters() if each.number == 3]
    monkeypatch.chdir(tmp_path)
    for name in ("ann", "bob"):
        learner(tmp_path / name, course, course[0].exercises[0].solution)

    def run(*words):
        return done("learn", "--grade", "ann", "bob", "--only", "3", *words)

    text = run()
    assert "Chapter 3" in text and "passed" in text
    found = json.loads(run("--json"))
    assert [each["name"] for each in found] == ["ann", "bob"] and {each["passed"] for each in found} == {1}
    assert len(list(csv.DictReader(io.StringIO(run("--csv"), newline="")))) == 2 * len(course[0].exercises)


def test_a_chapter_of_ones_own(tmp_path, here):
    """It is read, checked with its own mistakes, graded, and found again without being named."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "70-mine.md").write_text(HEAD.replace("number = 3", "number = 70") + SCORES, encoding="utf-8")
    read = read_chapter(own / "70-mine.md")
    folder = tmp_path / "learner"

    assert "Exercise: scores" in done("learn", folder, "70", "--chapters", own)
    path = folder / "70_scores.py"
    path.write_text(read.exercises[0].wrong[1].code)
    status, out, _ = regard("learn", folder, "--check")
    assert status == 1 and "keys-not-transposed" in out
    path.write_text(OTHER)
    done("learn", folder, "--check", path)

    (found,) = json.loads(done("learn", "--grade", folder, "--chapters", own, "--only", "70", "--json"))
    assert found["passed"] == 1 and found["grades"][0]["tries"] == 2

    own.rename(tmp_path / "moved")
    assert "does not exist" in refused("learn", folder, "--list")


def test_chapters_that_cannot_be_added_are_refused(tmp_path):
    """A folder without chapters, two numbers that are equal, and each file that cannot be read, by its name; README.md
    is for people.
    """
    (tmp_path / "README.md").write_text("# For teachers\n")
    with refusing("the folder has no chapter"):
        chapters(tmp_path)
    for name in ("03-a.md", "70-b.md", "70-c.md"):
        (tmp_path / name).write_text(HEAD.replace("number = 3", f"number = {int(name[:2])}"), encoding="utf-8")
    assert len(reasons_of(chapters, tmp_path)) == 2

    (tmp_path / "70-b.md").write_text("+++\nnumber = 70\n")
    (tmp_path / "70-c.md").write_bytes(b"\xff\xfe")
    with refusing(r"70-b\.md.*70-c\.md"):
        chapters(tmp_path)


DESTROYS = {
    "its folder": "import os, shutil\nshutil.rmtree(os.path.dirname(os.path.abspath(__file__)))\n",
    "by overwriting": "for name in ('helper.py', 'new.txt', __file__):\n    open(name, 'w').write('gone')\n",
    "after forks": "import os\nos.fork(), os.fork()\nif os.path.exists(__file__):\n    open(__file__, 'w').close()\n",
}


@pytest.mark.parametrize("name", DESTROYS)
def test_code_that_destroys_its_surroundings(name, tmp_path, monkeypatch):
    """It does so in a copy: the learners' folders and the teacher's are as before, and so is every other grade."""
    course = [chapter(tmp_path, SCORES)]
    folders = [learner(tmp_path / each, course, DESTROYS[name] + OTHER) for each in ("a", "b")]
    folders.append(learner(tmp_path / "c", course, "from helper import one\n" + OTHER))
    for folder in folders:
        (folder / "helper.py").write_text("one = 1\n")
    teacher = tmp_path / "teacher"
    teacher.mkdir()
    (teacher / "grades.csv").write_text("mine")
    monkeypatch.chdir(teacher)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    found = grades(folders, course)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert found[0].grades == found[1].grades and found[2].grades[0].result == "passed"


def test_folders_that_are_not_a_learners_are_said(tmp_path, course):
    """Their exercises are not begun; why this may be an error of the teacher's is said of each."""
    whole = learner(tmp_path / "class" / "whole", course, OTHER)
    empty = learner(tmp_path / "class" / "empty", course, None)
    begun = learner(tmp_path / "class" / "begun", course, None, tries=1)
    other = learner(tmp_path / "class" / "other", course, None)
    (other / "04_scores.py").write_text(OTHER)

    found = grades([tmp_path / "class", whole, empty, begun, other], course)

    assert [each.grades[0].result == "passed" for each in found] == [False, True, False, False, False]
    said = [each.problem for each in found]
    assert "some in " in said[0] and other.name in said[0]
    assert said[1] == said[3] == "" and "no file of the course" in said[2] and "04_scores.py" in said[4]
    everything = [each for each in chapters() if each.number in (3, 4)]
    (other / "04_scores.py").rename(other / everything[1].exercises[0].file_name)
    assert grades([other], everything[:1], course=everything)[0].problem == ""


@pytest.mark.parametrize("solution", ["return q[99] @ k", "import os; os._exit(1)", "import sys; sys.exit()"])
def test_a_chapter_that_fails_is_not_the_learners_error(tmp_path, solution):
    """A solution of a teacher's own that cannot be run: nothing is checked, and the way to find it is named."""
    own = [chapter(tmp_path, SCORES.replace("return q @ k.T / q.shape[-1] ** 0.5", solution, 1))]

    (grade,) = grades([learner(tmp_path / "a", own, OTHER)], own)[0].grades

    assert grade.result == "not checked"
    assert "the chapter's own cases or solution fail" in grade.problem and "regard.learn.proof" in grade.problem
