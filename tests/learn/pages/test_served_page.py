"""The course in a real browser beside the learner's editor and terminal: what is predicted, written, asked and kept."""

import json

import pytest

from regard.learn.folder import changing, read
from regard.learn.pages import server
from regard.learn.pages.site import write_site
from tests.learn.pages.course import RIGHT, WRONG, small_course
from tests.learn.pages.reader import Reader
from tests.support.axe import violations
from tests.support.lanes import sweep

KEY = "3/scores"


def stored(page, folder, wanted):
    """Waits until the learner's folder holds what is wanted: a page goes on before its server has stored it."""
    for _ in range(400):
        if wanted(read(folder)):
            return True
        page.tab.wait_for_timeout(50)
    return False


@pytest.fixture
def opened(contexts, tmp_path, folder):
    """A function that opens a page of the running server in a tab."""
    readers, context = [], contexts()
    with server.CourseServer(folder, small_course(tmp_path / "chapters")) as running:

        def opening(name="03-scores.html"):
            readers.append(Reader(context, running.address).open(name))
            return readers[-1]

        yield opening
        assert [each.said for each in readers if each.said] == []
        context.close()


def test_a_prediction_is_kept_and_then_the_code_runs(opened, folder):
    """What follows is hidden until it is answered; the output comes from the server; a reload shows all of it again."""
    page = opened()
    assert not page.visible("#alone") and page.visible("#more")
    page.answer("size", "nine")
    assert "not a number" in page.text("#size .unread") and read(folder).answers == {}
    page.answer("size", "9")
    page.appears("#size samp", "counted: 8")
    page.appears("#alone samp", "by itself")
    assert "You answered 9; the answer is 8." in page.text("#size .judged") and not page.visible("#more")
    assert stored(page, folder, lambda progress: progress.answers.get("3/size", {}).get("given") == "9")
    page.tab.reload()
    page.ready().appears("#size samp", "counted: 8")
    assert "You answered 9" in page.text("#size .judged") and page.visible("#alone")


def test_claims_pictures_and_questions_go_to_the_server(opened, folder):
    """A claim is judged before its program runs; the picture is drawn from what the server computes; a question of the
    reader's own is noted with its place.
    """
    page = opened()
    page.answer("size", "8")
    page.tab.click("#true button[value=fails]")
    page.appears("#true samp", "8 % 2 = 0")
    assert "Not so" in page.text("#true .judged")
    page.appears("[data-visual=bars] data")
    assert stored(page, folder, lambda progress: progress.claims == {"3/true": "fails"})
    page.tab.focus(".ask")
    page.tab.keyboard.press("Enter")
    page.tab.keyboard.type("Why a root?")
    page.tab.click(".asking [type=submit]")
    page.appears(".asking [role=status]", "Noted in")
    page.tab.keyboard.press("Escape")
    assert page.tab.evaluate("document.activeElement.className") == "ask"
    assert "## Why a root?\n\nchapter 3, Scores (" in folder.joinpath("notes.md").read_text()


def test_results_of_checks_appear_at_each_save(opened, folder):
    """A wrong file, then a right one: the words of the terminal stand beside the exercise, also in a new page."""
    page = opened()
    page.answer("size", "8")
    path = folder / "03_scores.py"
    assert str(path) in page.text("#scores .file")
    page.tab.locator("#scores").scroll_into_view_if_needed()
    page.until("document.querySelector('#scores .path')")
    while not path.exists():
        page.tab.wait_for_timeout(50)
    path.write_text(WRONG)
    page.appears("#scores .result .judged.wrong", "scores: not yet")
    result = page.text("#scores .result")
    for words in ("scores(q, k) is not right", "q = [[", "scale-missing", "the scale is missing", "1/√D", "seen"):
        assert words in result, words
    path.write_text(RIGHT)
    page.appears("#scores .result .judged.right", "scores is right: it passes every case and every law.")
    assert "scale-missing" not in page.text("#scores .result")
    again = opened()
    assert "scores is right" in again.text("#scores .result")
    again.tab.click("#scores .check")
    again.until("progress.exercises['3/scores'].tries === 3")


def test_hints_come_one_after_another_and_the_solution_after_a_try(opened, folder):
    """As in the terminal, and noted as there."""
    page = opened()
    page.answer("size", "8")
    hints = page.tab.locator("#scores .hint:visible")
    for number in (1, 2, 3):
        assert hints.count() == number
        hints.nth(number - 1).locator("summary").click()
        page.until(f"progress.exercises['3/scores'].hints === {number}")
    assert not page.visible("#scores .solution")
    page.tab.click("#scores .check")
    page.appears("#scores .result .judged")
    page.tab.click("#scores .solution summary")
    page.appears("#scores .solution pre")
    assert stored(page, folder, lambda progress: progress.exercises[KEY]["shown"])


def test_terminal_and_page_go_on_from_each_other(opened, folder):
    """What the terminal notes is shown at once, and where the page was is where the terminal goes on."""
    page = opened()
    contents = opened("")
    with changing(folder) as progress:  # as the terminal does
        progress.answered("3/size", "7", False)
        progress.current, progress.place["3"] = 3, "alone"
        progress.exercise(KEY)["passed"] = True
    page.appears("#size .judged", "You answered 7; the answer is 8.")
    page.appears("#scores .result", "You have passed it.")
    contents.appears(".continue a", "Continue where you stopped: 3. Scores")
    assert page.visible("#alone")
    page.tab.check("#last input[value='2']")
    page.tab.click("#last [type=submit]")
    page.appears("[data-visual=bars] data")
    page.tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.until("progress.place[3] === ''")
    assert stored(page, folder, lambda progress: (progress.place["3"], progress.current) == ("", 4))
    contents.appears("[data-chapter='3'] .done", "done")
    with changing(folder) as progress:
        progress.place["4"] = ""
    contents.appears(".continue a", "You have finished the course. Read it again: 3. Scores")


def test_a_question_comes_back_in_the_next_chapter(opened, folder):
    """One that was answered wrong; once."""
    with changing(folder) as progress:
        progress.answered("3/size", "7", False)
    page = opened("04-weights.html")
    assert "Again, from chapter 3" in page.text(".again:visible")
    page.answer("again-3-size", "8")
    page.appears("#again-3-size .judged", "Right: 8.")
    assert stored(page, folder, lambda progress: [each["right"] for each in progress.answers["3/size"]["again"]])
    page.tab.reload()
    assert not page.ready().visible("#again-3-size")


def test_the_end_of_the_server_is_told(contexts, tmp_path):
    """The page says what to do, and is still there to be read."""
    with server.CourseServer(tmp_path / "learner", small_course(tmp_path / "chapters")) as running:
        page = Reader(contexts(), running.address).open("03-scores.html")
    page.appears("#status", "The server has ended.")
    assert page.visible("#size")


@pytest.mark.parametrize("width, scheme", [(360, "light"), *sweep((1000, "dark"))])
def test_the_page_is_accessible(contexts, tmp_path, width, scheme):
    """With answers, a wrong result, hints and the open question field: axe-core finds nothing; nothing is cut off."""
    chapters, folder = small_course(tmp_path / "chapters"), tmp_path / "learner"
    folder.mkdir()
    folder.joinpath("03_scores.py").write_text(WRONG)
    context = contexts(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    with server.CourseServer(folder, chapters) as running:
        page = Reader(context, running.address).open("03-scores.html")
        page.answer("size", "9")
        page.tab.click("#true button[value=fails]")
        page.tab.click("#scores .hint summary")
        page.tab.click("#scores .check")
        page.appears("#scores .result .known")
        for action in (page.ready, lambda: page.tab.click(".ask"), lambda: page.open("")):
            action()
            assert violations(page.tab) == []
            assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


# ---- without a server ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The small course as files."""
    folder = tmp_path_factory.mktemp("site")
    for _ in write_site(folder / "pages", small_course(folder / "chapters")):
        pass
    return (folder / "pages").as_uri() + "/"


def asked(page, answer):
    """Asks a question of one's own, and waits for what is said of it."""
    page.tab.click(".ask")
    page.tab.fill("#question", "Why?")
    page.tab.click(".asking [type=submit]")
    page.appears(".asking [role=status]", answer)


def test_the_browser_keeps_the_progress(contexts, site):
    """Answers, claims, place and questions, in the pages and on the contents; they can be saved and forgotten."""
    page = Reader(contexts(accept_downloads=True), site).open("03-scores.html")
    page.answer("size", "9")
    page.tab.click("#true button[value=holds]")
    asked(page, "Noted.")
    page.tab.keyboard.press("Escape")
    page.tab.locator("#scores").scroll_into_view_if_needed()
    page.until("progress.place[3] !== undefined")
    page.tab.reload()
    page.ready()
    assert "You answered 9" in page.text("#size .judged") and "Right." in page.text("#true .judged")
    assert page.text("#size samp").strip() == "counted: 8" and not page.visible("#scores .check")
    page.open("index.html")
    assert page.text(".continue a").startswith("Continue where you stopped: 3.")
    assert "1 of 2 answered, 0 right" in page.text("[data-chapter='3']")
    with page.tab.expect_download() as saving:
        page.tab.click(".download")
    assert saving.value.suggested_filename == "notes.md"
    assert "## Why?\n\nchapter 3, Scores (" in saving.value.path().read_text()
    page.tab.on("dialog", lambda dialog: dialog.accept())
    page.tab.click(".forget")
    page.until("document.querySelector('.continue a')?.textContent === 'Begin'")
    assert page.tab.evaluate("localStorage.getItem(STORED)") is None and page.said == []


def test_two_tabs_lose_nothing(contexts, site):
    """What one stores is in what the other writes, and is shown there."""
    context = contexts()
    first, second = (Reader(context, site).open("03-scores.html") for _ in range(2))
    first.answer("size", "8")
    second.appears("#size .judged", "Right: 8.")
    second.tab.click("#true button[value=holds]")
    first.appears("#true .judged", "Right.")
    kept = json.loads(first.tab.evaluate("localStorage.getItem(STORED)"))
    assert kept["answers"].keys() == {"3/size"} and kept["claims"] == {"3/true": "holds"}


def test_all_works_where_nothing_may_be_kept(contexts, site):
    """Storage forbidden: predictions, claims, hints, questions; the page says once that nothing is kept."""
    context = contexts()
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
    )
    page = Reader(context, site).open("03-scores.html")
    assert "This browser keeps nothing" in page.text("#status")
    page.answer("size", "8")
    assert page.visible("#alone") and page.visible("#size .judged")
    page.tab.click("#scores .hint summary")
    page.until("[...document.querySelectorAll('#scores .hint')].filter((hint) => !hint.hidden).length === 2")
    asked(page, "keeps nothing")
    assert page.tab.evaluate("[Object.keys(progress.answers), progress.notes.length]") == [["3/size"], 1]
    page.open("index.html")
    assert page.text(".continue a") == "Begin" and page.said == []
