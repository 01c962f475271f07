"""The server of the course: what it judges and keeps, checks at each save, and its end.

Who is let in: tests/lens/test_server.py, for every server of regard. Results of saves: test_served_page.py.
"""

import itertools
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException

import pytest

from regard.learn import folder as learn_folder
from regard.learn.checking import check as checking
from regard.learn.folder import changing, read
from regard.learn.pages import checks as serving_checks
from regard.learn.pages import programs as serving_programs
from regard.learn.pages import server
from tests.learn.pages.client import Client, alone
from tests.learn.pages.course import RIGHT, WRONG, small_course
from tests.support.lanes import by_name
from tests.support.processes import descendants, marked, without
from tests.support.refusals import refusing
from tests.support.waiting import HANG

KEY = "3/scores"


@pytest.fixture
def chapters(tmp_path):
    """The small course."""
    return small_course(tmp_path / "chapters")


@pytest.fixture
def client(folder, chapters):
    """A client of a server of the small course."""
    with server.CourseServer(folder, chapters) as running:
        yield Client(running)


def save(folder, code):
    """Saves the learner's file of the exercise, whole at once: half of it could be checked, too."""
    whole = folder.with_name("03_scores.py")
    whole.write_text(code)
    whole.replace(folder / whole.name)


# ---- what is asked ---------------------------------------------------------------------------------------------------


def test_a_path_never_reaches_the_file_system(client, folder):
    """Only names of the course lead anywhere: not upwards, not to the learner's files, not encoded."""
    client.post("start", "scores")
    files = ("progress.json", "03_scores.py", "../learner/03_scores.py", "..%2f03_scores.py", "03-scores.md")
    numbers = ("changes/", "changes/x", "changes/-1", "changes/%D9%A3", "changes/" + "9" * 99)
    for path in (*files, *numbers, "web/course.js", "/etc/passwd"):
        assert client.ask(path)[0] == 404, path
    for what in ("nothing", "changes/0", "index.html", "answer/", "_read", "learner"):
        assert client.ask(what, {})[0] == 404, what
    for name in ("../../etc/passwd", "scores.py", "", "size"):
        assert "no such exercise" in client.refused("start", name)
    assert "no such chapter" in client.refused("start", "scores", chapter=99)
    assert [each.name for each in folder.glob("*.py")] == ["03_scores.py"]


def test_what_is_not_understood_is_refused(client, folder):
    """Other fields, other types, texts that are too long: a sentence, and nothing is stored."""
    for body in (
        *(b"", b"[]", b"{", b"\xff", b"[" * 50_000),
        {},
        {"key": "3/size"},
        {"key": 3, "given": "8"},
        {"key": "3/size", "given": 8},
        {"key": "3/size", "given": "8", "code": "print()"},
        {"key": "3/size", "given": "8" * 5000},
    ):
        assert "the request answer is not understood" in client.refused("answer", body=body)
    assert client.ask("answer", b" " * (server.LONGEST + 1))[0] == 413
    assert read(folder).answers == {}


def test_pages_say_what_they_may_do(client):
    """Every page loads its own script and style alone, and may talk to its own server alone."""
    for path in ("", "index.html", "03-scores.html", "04-weights.html"):
        status, headers, body = client.ask(path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = headers["content-security-policy"]
        assert "'unsafe" not in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert body.count(b"<script") == body.count(b"</script>") == 2
    for path, kind in (("course.js", "text/javascript"), ("course.css", "text/css")):
        status, headers, _ = client.ask(path)
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)


# ---- what runs -------------------------------------------------------------------------------------------------------


def test_only_code_of_the_course_runs(client):
    """A program, a claim and a visual are run by their names; code that a page sends is refused."""
    assert client.post("run", "size") == {"text": "counted: 8\n", "data": {}}
    assert client.post("run", "true") == {"text": "8 % 2 = 0\n", "data": {}}
    assert client.post("run", "bars") == {"text": "", "data": {"scores": [1.0, 2.0, 3.0]}}
    assert "not understood" in client.refused("run", "size", code="print(1)")
    for name in ("print(1)", "scores"):
        assert "no such program" in client.refused("run", name)


def test_a_program_runs_once_and_its_failure_is_told(tmp_path, monkeypatch):
    """What a program gave is kept, also for two who ask at once. An error, a crash, a loop, in a teacher's own chapter:
    a sentence, and the next program runs.
    """
    runs = tmp_path / "runs"
    codes = {
        "noted": f'with open({str(runs)!r}, "a") as file:\n    file.write("once")\nprint(5)',
        "error": "print(1 // 0)",
        "crash": "import os\n\nos.abort()",
        "leaves": "import sys\n\nsys.exit(3)",
        "loop": "import time\n\ntime.sleep(600)",
    }
    more = "".join(f"\n```python reveal {name}\n{code}\n```\n" for name, code in codes.items())
    with server.CourseServer(tmp_path / "learner", small_course(tmp_path / "chapters", more)) as running:
        client = Client(running)
        with ThreadPoolExecutor(2) as pool:
            given = [*pool.map(lambda name: client.post("run", name), ["noted"] * 2)]
        assert given == [{"text": "5\n", "data": {}}] * 2 and runs.read_text() == "once"
        for name, says in {"error": "ZeroDivisionError", "crash": "SIGABRT", "leaves": "exit status 3"}.items():
            assert says in client.refused("run", name)
        monkeypatch.setattr(serving_programs, "SECONDS", 2.0)
        assert "did not return in 2 s" in client.refused("run", "loop")
        monkeypatch.undo()
        assert client.post("run", "size")["text"] == "counted: 8\n"


# ---- answers and progress --------------------------------------------------------------------------------------------


def test_the_first_answer_is_judged_and_kept(client, folder):
    """By the forms of the terminal; later ones change nothing; "" is a learner who asked for the answer."""
    assert "is not a number" in client.refused("answer", key="3/size", given="eight")
    assert not client.post("answer", key="3/size", given="9")["right"]
    assert client.post("answer", key="3/size", given="8")["given"] == "9"
    assert not client.post("answer", key="3/last", given="")["right"]
    assert "no such question" in client.refused("answer", key="3/scores", given="8")
    assert {key: (each["given"], each["right"]) for key, each in read(folder).answers.items()} == {
        "3/size": ("9", False), "3/last": ("", False)
    }  # fmt: skip


def test_a_question_comes_back_once(client, folder):
    """In each chapter; only one that was answered."""
    assert "no such answer" in client.refused("again", key="3/size", given="8", chapter=4)
    client.post("answer", key="3/size", given="9")
    for given in ("8", "7"):
        assert client.post("again", key="3/size", given=given, chapter=4) == {}
    again = read(folder).answers["3/size"]["again"]
    assert [(each["chapter"], each["right"]) for each in again] == [(4, True)]


def test_claims_are_kept(client, folder):
    """The first judgement; an older progress without claims is read."""
    folder.joinpath("progress.json").write_text('{"version": 1, "answers": {}}')
    assert client.post("claim", "true", given="fails") == client.post("claim", "true", given="holds") == {}
    assert "no such outcome" in client.refused("claim", "true", given="maybe")
    assert read(folder).claims == {"3/true": "fails"}


def test_the_place_goes_forward_and_ends_when_nothing_is_left(client, folder, chapters):
    """The terminal goes on where the page was; a chapter is done when its questions and exercises are."""
    names = [part.name for part in chapters[0].parts]

    def at(name, chapter=3):
        assert client.post("place", name, chapter=chapter) == {}
        progress = read(folder)
        return progress.current, progress.place[str(chapter)]

    assert [at("alone"), at(names[0])] == [(3, "alone")] * 2
    assert at("") == (3, names[-1])  # something is left
    client.post("answer", key="3/size", given="8")
    client.post("answer", key="3/last", given="2")
    with changing(folder) as progress:
        progress.exercise(KEY)["passed"] = True
    assert [at(""), at("alone"), at("", 4)] == [(4, "")] * 3  # looked up: it stays done
    assert "no such part" in client.refused("place", "nowhere")


def test_two_clients_and_a_terminal_lose_nothing(client, folder):
    """Answers, hints, claims and a terminal's tries at once: all of them are there."""

    def terminal():
        for _ in range(30):
            with changing(folder) as progress:
                progress.exercise("3/other")["tries"] += 1

    with ThreadPoolExecutor(7) as pool:
        asked = [pool.submit(terminal)]
        for number in range(1, 4):
            asked += [
                pool.submit(client.post, "hint", "scores", number=number),
                pool.submit(client.post, "answer", key="3/size", given=str(number)),
                pool.submit(client.post, "claim", "true", given="holds"),
                pool.submit(client.post, "note", "alone", text=f"why {number}"),
            ]
    for each in asked:
        each.result()
    found = read(folder)
    assert found.exercises["3/other"]["tries"] == 30 and found.exercises[KEY]["hints"] == 3
    assert found.answers["3/size"]["given"] in ("1", "2", "3") and found.claims == {"3/true": "holds"}
    assert folder.joinpath("notes.md").read_text().count("## why") == 3


def test_a_killed_server_loses_nothing_and_leaves_no_process(folder, chapters):
    """kill -9 while it stores, again and again: the progress can be read, what was acknowledged is there, and its
    children end with it.
    """

    def store(client, noted, attempt):
        with suppress(OSError, AssertionError, HTTPException):
            for number in itertools.count():
                client.post("note", "alone", text=f"{attempt}-{number}")
                client.post("place", "alone")
                noted.append(f"{attempt}-{number}")

    with marked() as mark:
        for attempt in range(3):
            process, client = alone(folder, chapters)
            client.post("run", "size")
            noted, started = [], len(descendants(mark))
            thread = threading.Thread(target=store, args=(client, noted, attempt))
            thread.start()
            while not noted:
                time.sleep(0.01)
            time.sleep(0.17 * attempt)
            process.kill()
            process.communicate(timeout=HANG)
            thread.join()
            assert noted and started > 1 and read(folder).place == {"3": "alone"}
            notes = folder.joinpath("notes.md").read_text()
            assert all(f"## {each}\n" in notes for each in noted)
            assert without(mark) == []


# ---- exercises -------------------------------------------------------------------------------------------------------


def test_a_file_as_it_was_begun_is_not_checked(client, folder):
    """It is where the page says; nor is it while an editor has emptied it. (Results of saves: test_served_page.)"""
    assert client.post("start", "scores") == {}
    (folder / "03_scores.py").write_text("")
    time.sleep(1.0)
    assert client.changes(0)["checking"] == [] and read(folder).exercises == {}


def test_saves_that_come_quickly_are_checked_once_more_at_the_end(client, folder):
    """Twenty saves in a second: a few checks, and the last one is of the last text."""
    for _ in range(19):
        save(folder, WRONG)
        time.sleep(0.05)
    save(folder, RIGHT)
    found = client.result(KEY)
    while not found["right"]:
        found = client.result(KEY, than=found)
    assert read(folder).exercises[KEY]["tries"] < 20


@by_name(
    "code, says",
    {
        "hangs": ("def scores(q, k):\n    while True:\n        pass\n", "did not return in 1.5 s"),
        "crashes": ("import os\n\n\ndef scores(q, k):\n    os.abort()\n", "SIGABRT"),
        "forks": ("import os\n\nos.fork()\n\n\ndef scores(q, k):\n    return q\n", ""),
    },
)
def test_whatever_a_file_does_others_are_answered(client, folder, code, says, monkeypatch):
    """A loop, a crash, a fork: the check says so; the server answers meanwhile, and checks the next save."""
    monkeypatch.setattr(checking, "STEP", 1.5)
    client.post("start", "scores")
    save(folder, code)
    client.post("check", "scores")
    time.sleep(0.5)
    assert client.post("answer", key="3/size", given="8")["right"] and client.ask("03-scores.html")[0] == 200
    found = client.result(KEY)
    assert not found["right"] and says in f"{found['what']} {found['details']}"
    save(folder, RIGHT)
    while not found["right"]:
        found = client.result(KEY, than=found)


def test_hints_and_the_solution_are_noted(here, client, folder):
    """As the terminal does: a solution after a try, and passing afterwards is not the learner's own."""
    client.post("hint", "scores", number=2)
    client.post("hint", "scores", number=1)
    assert "no such hint" in client.refused("hint", "scores", number=4)
    assert "the solution is shown after a try" in client.refused("show", "scores")
    client.post("check", "scores")
    found = client.result(KEY)
    client.post("show", "scores")
    save(folder, RIGHT)
    client.result(KEY, than=found)
    assert read(folder).exercises[KEY] == {"tries": 2, "hints": 2, "shown": True, "passed": "shown"}


def test_notes_have_their_place(client, folder):
    """One question, one heading, whatever lines it had."""
    assert client.post("note", "alone", text="Why\n\n# not\nthis? ") == {"path": str(folder / "notes.md")}
    assert "## Why # not this?\n\nchapter 3, Scores (alone), " in folder.joinpath("notes.md").read_text()
    assert "no question" in client.refused("note", "alone", text=" \n")


# ---- waiting for changes ---------------------------------------------------------------------------------------------


def test_who_waits_is_answered_in_any_case(client, monkeypatch):
    """After a while, with what is known; so nothing waits for a page that is gone. (At once if something has changed:
    test_served_page.)
    """
    monkeypatch.setattr(server, "WAIT", 0.5)
    known = client.changes(10**9)["version"]
    assert client.changes(known)["version"] == known


# ---- the learner's folder --------------------------------------------------------------------------------------------


def test_a_folder_that_is_removed_is_begun_anew(here, client, folder):
    """While the server runs: an answer is kept, a file is written, and its saves are checked."""
    client.post("start", "scores")
    shutil.rmtree(folder)
    assert client.ask("03-scores.html")[0] == 200
    assert client.post("answer", key="3/size", given="8")["right"]
    client.post("start", "scores")
    time.sleep(5 * serving_checks.GLANCE)  # it has been noticed
    save(folder, RIGHT)
    assert client.result(KEY)["right"]
    assert read(folder).answers["3/size"]["right"]


def test_a_folder_that_cannot_be_written_is_told(here, folder, chapters, monkeypatch):
    """The page is shown, the answer refused in a sentence, and a result that cannot be noted is shown. Modes do not
    stop root, so the lock of the folder refuses here.
    """
    folder.mkdir()
    save(folder, WRONG)

    def denied(*given, **more):
        raise learn_folder.refuse("learn", "it cannot be written", str(folder), "another", "name another")

    with server.CourseServer(folder, chapters) as running:
        client = Client(running)
        monkeypatch.setattr(learn_folder, "_locked", denied)
        assert client.ask("03-scores.html")[0] == 200
        assert "it cannot be written" in client.refused("answer", key="3/size", given="8")
        client.post("check", "scores")
        found = client.result(KEY)
        assert found["mistake"] == "scale-missing" and "could not be noted" in found["unnoted"]


def test_a_damaged_progress_is_told(client, folder):
    """In place of the page, with what to do."""
    folder.joinpath("progress.json").write_text("{")
    status, headers, body = client.ask("03-scores.html")
    assert (status, headers["content-type"].split(";")[0]) == (500, "text/plain")
    assert b"the progress cannot be read" in body and b"fix" in body
    assert folder.joinpath("progress.json").read_text() == "{"


def test_missing_packages_are_refused(tmp_path, monkeypatch):
    """All of them at once, with what installs them."""
    monkeypatch.setattr(server, "PACKAGES", ("markdown_it", "no_such_package", "none_such"))
    with refusing(r"no_such_package(.|\n)*regard\[learn\](.|\n)*none_such"):
        server.CourseServer(tmp_path, [])


# ---- its end ---------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("busy", ["waits", "checks", "runs"])
def test_ctrl_c_ends_it_at_once(tmp_path, busy):
    """While a page waits, a check hangs or a program runs: it ends without a word, and no process is left."""
    loop = "\n```python reveal loop\nwhile True:\n    pass\n```\n"
    chapters, folder = small_course(tmp_path / "chapters", loop), tmp_path / "learner"
    with marked() as mark:
        process, client = alone(folder, chapters)
        client.post("run", "size")
        if busy == "checks":
            save(folder, "def scores(q, k):\n    while True:\n        pass\n")
            while not client.changes(0)["checking"]:
                time.sleep(0.05)
        request = [f"changes/{client.changes(10**9)['version']}"]
        if busy == "runs":
            request = ["run", {"chapter": 3, "name": "loop"}]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(client.ask, *request)
            time.sleep(0.7)
            started = len(descendants(mark))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANG)
        assert (process.returncode, out, err) == (0, "ended\n", "")
        assert started > 1 and descendants(mark) == []


def test_a_port_that_is_taken_is_refused(client, folder, chapters):
    """The sentence names the port."""
    with refusing(f"the port is not available(.|\n)*{client.port}"):
        server.CourseServer(folder, chapters, port=client.port)
