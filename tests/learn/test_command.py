"""The options of `regard learn`, as a learner types them."""

import pytest

from regard.learn.folder import read
from regard.learn.source import chapters
from tests.support.command import done, refused, regard, until_ctrl_c

pytestmark = pytest.mark.usefixtures("here")
THREE = next(each for each in chapters() if each.number == 3)
FIRST = THREE.exercises[0]
FILE = FIRST.file_name


def run(*words, lines=()):
    """One command: its exit status, and what it printed as one line."""
    status, out, err = regard("learn", *words, input="".join(f"{line}\n" for line in lines).encode())
    return status, " ".join((out + err).split())


# Options, in a folder with a file `file`, and what is said of them.
REFUSED = {
    "a 99": "a number from 0 to",
    "a 99 --serve": "a number from 0 to",
    "a --hint --show": "two options",
    "--grade --list": "two options",
    "a --serve --site b": "two options",
    "--grade a --json --csv": "two formats",
    "a b": "one folder",
    "ask": "no question",
    "check": "an option without its hyphens",
    "--list 3": "number of a chapter has no use",
    "--reset 3 4": "number of a chapter has no use",
    "--claim all 3": "number of a chapter has no use",
    "3 ask why?": "number of a chapter has no use",
    "--claim all a": "a folder has no use",
    "--site b a": "a folder has no use",
    "--notebooks x y": "a folder has no use",
    "--json": "--json has no use",
    "--only 3": "--only has no use",
    "a --serve --only 3": "--only has no use",
    "a --port 8000": "--port has no use",
    "a --check --open": "--open has no use",
    "--claim unheard-of": "--claim all lists them",
    "--claim file": "nothing to check",
    "--check x.py": "not one of the course",
    f"--check {FILE}": "does not exist",
    "a 3 --show": "after a try",
    "--read none.md": "cannot be read",
    **{f"file {words}": "cannot be written" for words in ("--serve", "3", "ask why")},
    "--grade a --only 3-1": "the chapters cannot be read",
    "--grade a --only three": "the chapters cannot be read",
    "--grade a --only 3-1000000000": "the chapter does not exist",
}


@pytest.mark.parametrize(("words", "said"), REFUSED.items())
def test_wrong_words_are_refused(words, said, tmp_path):
    """Each message says what to type instead; nothing is run."""
    (tmp_path / "file").write_text("mine")

    status, _, err = regard("learn", *words.split(), cwd=tmp_path)

    assert status == 2 and said in err, err
    assert (tmp_path / "file").read_text() == "mine"


def test_the_solution_is_shown_after_a_try_and_noted(tmp_path):
    """Hints come one by one, and the third stays the last one. A check says how to go on, a shown solution is not the
    learner's own, and the list says how far one is.
    """
    folder = tmp_path / "x"
    for hint in (*FIRST.hints, FIRST.hints[2]):
        assert " ".join(hint.replace("`", "").split())[:30] in run(folder, "3", "--hint")[1]
    status, text = run(folder, "3", "--check")
    assert status == 1 and "A hint: regard learn" in text
    status, text = run(folder, "3", "--show")
    assert status == 0 and FIRST.solution.split("\n")[-2].strip()[:20] in text

    (folder / FILE).write_text(FIRST.solution)
    status, text = run(folder, "3", "--check")
    assert status == 0 and "To go on: regard learn" in text
    noted = read(folder).exercises[f"3/{FIRST.name}"]
    assert (noted["passed"], noted["hints"]) == ("shown", 3)
    status, text = run(folder, "--list")
    assert status == 0 and f"1 of {len(THREE.exercises)}" in text and "0 of 1" in text


def test_all_files_for_those_who_know(tmp_path):
    """All exercises of a chapter are begun at once, and then the lesson has none left."""
    folder, exercises = tmp_path / "x", chapters()[4].exercises
    status, text = run(folder, "4", "--fast")
    for each in exercises:
        path = folder / each.file_name
        assert status == 0 and path.name in text.replace(" ", "") and path.read_text() == each.start
        path.write_text(each.solution)
        assert run("--check", path)[0] == 0
    assert all(read(folder).passed(f"4/{each.name}") for each in exercises)


def test_a_chapter_begins_anew(tmp_path):
    """The learner's file is kept aside; the progress of the chapter is forgotten."""
    folder = tmp_path / "x"
    run(folder, "3", "--hint")
    (folder / FILE).write_text("# mine\n")
    run(folder, "3", "--check")
    status, _ = run(folder, "--reset", "3")

    assert status == 0 and not (folder / FILE).exists()
    assert [path.read_text() for path in (folder / "old").iterdir()] == ["# mine\n"]
    assert read(folder).exercises == {} and read(folder).current == 3


def test_questions_of_ones_own(tmp_path):
    """They are appended, each with the chapter and part where the learner is."""
    folder = tmp_path / "x"
    run(folder, "3")
    assert run(folder, "ask", "Why", "a", "root?")[0] == run(folder, "ask", "Why e?")[0] == 0
    notes = (folder / "notes.md").read_text()

    first, last = (notes.index(f"## Why {words}?") for words in ("a root", "e"))
    assert first < notes.index("chapter 3, Scores and scale (") < last
    assert notes.count("chapter 3, ") == 2 and notes.count("# Questions of my own") == 1


def test_what_is_typed_is_shown_whole(tmp_path, monkeypatch):
    """The names of files and claims, in a narrow terminal; to list them, no folder is needed."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("COLUMNS", "60")
    files, claims = run(tmp_path / "file", "--list")[1], run("--claim", "all")[1]

    assert not [each for chapter in chapters() for each in chapter.exercises if each.file_name not in files]
    assert not [each.name for chapter in chapters() for each in chapter.claims if each.name not in claims]


def test_code_is_as_wide_as_the_terminal():
    """A claim is run; a line that fits is not broken."""
    claim = next(each for each in chapters()[5].claims if not each.needs)
    lines = done("learn", "--claim", claim.name, COLUMNS="130").splitlines()
    code = [line for line in claim.program.splitlines() if line.strip()]

    assert max(map(len, code)) > 100 and {f"    {line}" for line in code} <= {line.rstrip() for line in lines}


def test_the_course_as_pages(tmp_path):
    """The chapters that are named, and where to begin; a folder with files in it stays as it is."""
    status, said = run("--site", tmp_path / "pages", "--only", "0")
    assert status == 0 and "1 chapter, " in said and str(tmp_path / "pages" / "index.html") in said.replace(" ", "")
    assert sorted(each.name for each in (tmp_path / "pages").iterdir()) == [
        *("00-numbers.html", "course.css", "course.js", "index.html"),
    ]
    assert "not empty" in refused("learn", "--site", tmp_path / "pages")


def test_the_course_in_the_browser(tmp_path):
    """`--serve` says the address of the chapter, and ends with Ctrl-C."""
    address, page, out = until_ctrl_c("learn", tmp_path / "x", "3", "--serve")
    assert b"<h1>3. Scores and scale</h1>" in page and "03-scores.html" in address and out == ""
