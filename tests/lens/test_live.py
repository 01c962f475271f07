"""A served page takes other texts and changed rules: the runs that it makes, what it refuses, and the page in a real
browser. The rules themselves: `Run.changed` against `attention_weights`.
"""

import numpy as np
import pytest
import starlette  # noqa: F401, without which all is skipped
import uvicorn  # noqa: F401

import regard as rg
from regard.lens.open_model import OpenModel
from regard.lens.runs import codes
from regard.lens.viewer import live, routes, server
from tests.lens.client import Client
from tests.lens.minilm import SENTENCE, with_minilm
from tests.support.browser import Opened, example, fault
from tests.support.refusals import refusal

WIDE = SENTENCE.replace("tired", "wide")


def attended(call, *, temperature=1.0, scale=None, **more):
    """The weights of the law with changed rules, on the recorded q and k."""
    rules = {"mask": call.mask, "scale": (call.scale if scale is None else scale) / temperature} | more
    return rg.attention_weights(call.q, call.k, **rules)


def made(client, what, **given):
    """The new run of a request."""
    status, found = client.post(f"live/{what}", given)
    assert status == 200, found
    return found


def row_near(client, address, exact):
    np.testing.assert_allclose(client.weights(f"row/{address}"), exact, rtol=2e-4, atol=1.1e-6)


@pytest.fixture
def rules():
    """A server of a run of random heads, without a model, and a client."""
    run, _ = example(12, mask=rg.causal())
    with server.Server(run) as running:
        yield run, Client(running)


@pytest.fixture(scope="module")
def texts():
    """A server of MiniLM's run of a text, as the command makes it."""
    run = rg.look(text=SENTENCE)
    with server.Server(run, record=OpenModel.of(run)) as running:
        yield running


# ---- Run.changed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.5},
        {"temperature": 3.0, "scale": 0.1},
        {"mask": None},
        {"mask": rg.causal() & rg.window(3)},
    ],
)
def test_changed_runs_have_the_weights_of_the_changed_rules(change):
    """Weights, the figures of rows, and Σ p v are those of the law with the changed rules, on the recorded q, k, v."""
    run, _ = example(12, 2, 4, rg.causal(), groups=2)
    changed = run.changed(**change)
    for before, after in zip(run.calls, changed.calls, strict=True):
        p = attended(before, **change)
        for found, exact in (
            (after.weights(), p),
            (after.rows["maximum"], p.max(-1)),
            (after.received, p.sum(1)),
            (after.out, p @ np.repeat(before.v, 2, 0)),
        ):
            np.testing.assert_allclose(found, exact, rtol=5e-5, atol=1e-6)
        assert after.notes["changed"] in changed.facts["changed"]


def test_rules_that_read_the_head_keep_their_heads():
    """Calls are computed together where their rules are the same for every head; others are not mixed up."""
    slope = rg.score - 0.3 * rg.head * (rg.query - rg.key)
    run, exact = example(12, mask=rg.causal(), score=slope)
    for before, after in zip(exact, run.changed(temperature=2.0).calls, strict=True):
        p = np.sqrt(before.astype(np.float64))  # softmax(s / 2) ∝ √softmax(s)
        np.testing.assert_allclose(after.weights(), p / p.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)
    assert run.changed() is run
    one = run.changed(temperature=2.0, calls=[1])  # chosen calls alone change
    assert one.calls[0] is run.calls[0] and one.calls[1] is not run.calls[1]


def test_changes_that_are_no_rules_are_refused_together():
    """Every problem is in one message; a call without q and k is refused by its name."""
    run, _ = example(12)
    said = refusal(run.changed, temperature=0, scale=float("nan"), mask="diagonal", calls=[7])
    for part in ("temperature is not a positive number", "scale is not a number", "unknown mask", "no such call"):
        assert part in said
    bare = fault(run, given=run.calls[0].weights(), q=None, k=None)
    assert "only the weights are known" in refusal(bare.changed, temperature=2.0)


# ---- requests --------------------------------------------------------------------------------------------------------


def test_changed_rules_are_a_new_run(rules):
    """Its numbers are those of the rules; the first run stays; the page learns its calls, and keeps the text."""
    run, client = rules
    new = made(client, "rules", n=0, temperature=0.25, scale=None, mask="recorded", call=0)
    assert new["number"] == 1 and new["run"].keys() == {"calls", "facts", "findings", "python"}
    row_near(client, "1/1/2/11", attended(run.calls[1], temperature=0.25)[2, 11])
    row_near(client, "0/1/2/11", attended(run.calls[1])[2, 11])
    for mask, width in (("causal window", 2), ("window", 3), ("causal", None), ("none", None)):
        number = made(client, "rules", n=0, mask=mask, window=width, call=0)["number"]
        near = np.arange(12) - 6
        allowed = (near <= 0 if "causal" in mask else near < 12) & (abs(near) < (width or 12))
        assert ((client.frame(f"row/{number}/0/0/6")[1]["coarse"] != codes.MASKED) == allowed).all()


@with_minilm
def test_the_model_without_an_edge(texts):
    """Its row has the other keys' weights, renormalized; the answer says how far outputs move."""
    client, before = Client(texts), rg.look(text=SENTENCE).calls[3].weights(heads=1)[0]
    new = made(client, "without", n=0, call=3, head=1, query=9, key=2)
    kept = np.where(np.arange(len(before)) == 2, 0, before[9])
    row_near(client, f"{new['number']}/3/1/9", kept / kept.sum())
    row_near(client, f"{new['number']}/3/1/8", before[8])
    facts = new["run"]["facts"]
    assert facts["changed"] == "without because → animal in head 1 of encoder.layer.3.attention.self"
    assert "cosine" in facts["difference"][0]


def test_requests_for_runs_are_checked(rules):
    """Nothing is computed from a request that is no JSON object, too long, or names no rule, run or model."""
    _, client = rules
    for body in (b"", b"[]", b"nothing", b"\xff", b"{"):
        said = f"not a JSON object: {body[:40]!r}; expected an object"
        assert client.post("live/rules", body) == (400, {"error": said})
    for what, given, said in (
        ("rules", {"n": 0, "mask": "diagonal"}, "unknown mask: 'diagonal'"),
        ("rules", {"n": 0, "mask": "window"}, "unknown mask"),
        ("rules", {"n": 0, "mask": "window", "window": -1}, "unknown mask"),
        ("rules", {"n": 0, "mask": "none", "temperature": "1"}, "temperature is not a positive number"),
        ("rules", {"n": 5, "mask": "none"}, "no such run: 5"),
        ("rules", {"n": True, "mask": "none"}, "no such run: True"),
        ("text", {"text": "words"}, "the model of this run is not known"),
        ("without", {"n": 0, "call": 0, "head": 1}, "the model of this run is not known"),
        ("without", {"n": 0, "call": 0, "head": "mean"}, "mean"),
        ("text", {"text": " \n"}, "no text"),
    ):
        status, found = client.post(f"live/{what}", given)
        assert status == 400 and said in found["error"]
    assert client.post("live/text", b" " * (live.LONGEST + 1))[0] == 413
    assert client.post("live/rules", {"n": 0}, Content_Type="text/plain")[0] == 415
    assert client.post("live/rules", {"n": 0}, Origin="http://evil.example")[0] == 403
    assert client.post("row/0/0/0/0", {"n": 0})[0] == client.post("live/nothing", {"n": 0})[0] == 404


def test_old_runs_are_forgotten_and_numbers_are_never_used_again(rules, monkeypatch):
    """The server keeps the runs that were used last; the first one stays for ever."""
    _, client = rules
    monkeypatch.setattr(routes, "HELD", 2)
    for number in (1, 2, 3):
        assert made(client, "rules", n=0, mask="none", temperature=number)["number"] == number
        assert client.ask("row/1/0/0/0")[0] == client.ask("row/0/0/0/0")[0] == 200  # so run 1 is not the oldest
    assert "no such run" in client.error("row/2/0/0/0")[1]
    assert client.ask("row/3/0/0/0")[0] == 200


# ---- the page --------------------------------------------------------------------------------------------------------


def until(view, condition):
    """Waits until a condition in the page holds."""
    view.tab.evaluate(
        f"async () => {{ while (!({condition})) await new Promise((done) => setTimeout(done, 10)); }}",
    )
    view.settled()


def row_of(view):
    """The weights of the row that the page shows."""
    row = view.asks("row", *view.state("run", "call", "head", "query"))
    return codes.decode(*(np.array(row[name], np.uint8) for name in ("coarse", "fine")))


@with_minilm
def test_typing_and_rules_change_the_whole_page(texts, chromium):
    """A typed text and a switched rule reach the sentence, the map and the walk; the address keeps them; the reset
    brings the model's own run back.
    """
    view = Opened(chromium, texts.address, "#call=3&head=1&query=9&open=live")
    view.tab.fill("#live-text", WIDE)
    until(view, "state.run > 0")
    assert "wide" in view.text("#reader")
    call, close = rg.look(text=WIDE).calls[3], {"rtol": 2e-4, "atol": 1.1e-6}
    np.testing.assert_allclose(row_of(view), call.weights(rows=9, heads=1)[0, 0], **close)
    number = view.state("run")
    view.tab.select_option("#live-mask", "causal")
    until(view, f"state.run > {number}")
    assert view.state("query") == 9
    np.testing.assert_allclose(row_of(view), attended(call, mask=rg.causal())[1, 9], **close)
    address = view.address()
    assert "mask=causal" in address and "text=" in address and "run=" not in address
    again = Opened(chromium, texts.address, address)
    until(again, "state.run > 0 && live.rules() !== null")
    assert "wide" in again.text("#reader") and again.tab.input_value("#live-mask") == "causal"
    again.context.close()
    view.click("#live-reset")
    until(view, "state.run === 0")
    view.click("#live-head")
    until(view, "state.run > 0")
    assert "without head 1" in view.text("#live-difference") and "without=3.1" in view.address()
    assert view.tab.evaluate("runs[state.run].start === runs[0].start")  # what the page opens on stays
    view.click("#live-reset")
    until(view, "state.run === 0")
    assert view.tab.input_value("#live-text") == SENTENCE and "tired" in view.text("#reader")
    assert not view.said and all(url.startswith((texts.address, "data:", "blob:")) for url in view.asked)
    view.context.close()


def test_a_page_without_a_model_keeps_what_a_switch_of_rules_does_not_touch(chromium):
    """The list of heads, the text and what the page opens on are built once. A refused temperature or window gives way
    to the value that is used, and the page says what is expected; so it does of a server that was stopped.
    """
    with server.Server(example(12)[0]) as running:
        view = Opened(chromium, running.address, "#open=live")
        view.tab.evaluate("window.option = document.querySelector('#map-head option')")
        view.tab.select_option("#live-mask", "none")
        until(view, "state.run > 0")
        assert view.tab.evaluate(
            "option.isConnected && runs[state.run].axes === runs[0].axes && runs[state.run].start === runs[0].start"
        )
        for field, wrong, used, said in (
            ("#live-temperature", "-1", "1", "a temperature is a number above 0: “-1” was not taken"),
            ("#live-temperature", "", "1", "a temperature is a number above 0: nothing was not taken"),
            ("#live-width", "0", "4", "a window has 1 key or more: “0” was not taken"),
        ):
            view.tab.select_option("#live-mask", "window" if field == "#live-width" else "recorded")
            view.settled()  # what the page says of the mask would take the place of the refusal
            view.tab.fill(field, wrong)
            view.press("Enter")
            view.tab.wait_for_selector("#live-said.alarm")
            assert (view.tab.input_value(field), view.text("#live-said")) == (used, said)
        assert view.tab.evaluate("live.rules().window") == 4
    shown = view.state("run")
    view.tab.select_option("#live-mask", "causal")
    view.tab.wait_for_function("$('live-said').textContent.includes('the server does not answer: it was stopped.')")
    assert view.state("run") == shown
    view.context.close()
