"""The server of a page: numbers that are those of attention, for this machine and for who knows the secret, whatever
clients do.
"""

import contextlib
import json
import socket
import struct
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import starlette  # noqa: F401, without which all is skipped
import uvicorn  # noqa: F401

import regard as rg
from regard.lens import Run
from regard.lens.runs import codes
from regard.lens.runs.codes import FINE_ERROR, LEAK, MASKED, NAN, decode
from regard.lens.viewer import routes, server
from regard.lens.viewer.routes import mean_of
from tests.lens.client import Client, near, unframed
from tests.lens.test_figures import defined
from tests.support.browser import example, fault, spoiled
from tests.support.waiting import HANG

N = 300


@pytest.fixture(scope="module")
def served():
    """A server of a run of 300 tokens beside another, their exact weights, and a client."""
    run, exact = example(N, 2, 4, rg.causal() & rg.window(200), groups=2)
    other, exact_too = example(N, 2, 4, groups=2, seed=5)
    with server.Server(run, other) as running:
        yield running, Client(running), (run, other), (exact, exact_too)


# ---- the numbers -----------------------------------------------------------------------------------------------------


def test_numbers_are_the_weights(served):
    """Tiles at the finest level, rows and columns of both runs; cells of 4 × 4 pairs, of which each is the mean over
    its rows of the sum over its keys, or the largest weight in it; one pair of positions in all heads of a call.
    """
    _, client, _, (weights, others) = served
    cells = weights[0][1].reshape(75, 4, 75, 4)
    for path, exact in {
        "tile/0/0/0/share/0/1/0": weights[0][0][256:, :256],
        "tile/0/1/3/largest/0/0/1": weights[1][3][:256, 256:],
        "tile/1/0/2/share/0/0/0": others[0][2][:256, :256],
        "tile/0/0/1/share/2/0/0": cells.sum(3).mean(1),
        "tile/0/0/1/largest/2/0/0": cells.max((1, 3)),
        "row/0/1/3/123": weights[1][3][123],
        "column/1/0/2/45": others[0][2][:, 45],
        "pair/0/1/150/120": weights[1][:, 150, 120],
    }.items():
        assert client.frame(path)[0]["exact"] == "exact"
        near(client.weights(path), exact)
    assert ((client.frame("row/0/0/0/100")[1]["coarse"] == codes.MASKED) == (np.arange(N) > 100)).all()


def test_tracks_walks_and_pictures_are_those_of_the_run(served):
    """Figures along the axes, the numbers of one row, and pictures of all heads, also where the run has none."""
    _, client, (run, _), (exact, _) = served
    np.testing.assert_allclose(client.frame("tracks/0/1/2")[1]["maximum"], exact[1][2].max(-1), rtol=1e-5)
    _, headers, body = client.ask("walk/0/1/2/77")
    walk = json.loads(body)
    assert headers["content-type"] == "application/json"
    np.testing.assert_allclose(walk["p"], exact[1][2][77, walk["keys"]], rtol=1e-4, atol=1e-6)
    picture, cut = client.frame("overview/0/0")[1]["codes"], np.arange(128) * N // 128
    sums = np.add.reduceat(np.add.reduceat(exact[0], cut, 2), cut, 1)
    near(codes.decode(picture), sums / np.diff(cut, append=N)[:, None], codes.COARSE_ERROR)
    computed = unframed(routes.Responder([fault(run, overview=None)]).answer("overview", "0", "0"))[1]["codes"]
    assert (abs(computed.astype(int) - picture) <= 1).all()


# ---- who is let in ---------------------------------------------------------------------------------------------------


def test_only_the_browser_of_this_machine_is_answered(served):
    """Without the secret, or with a part of it, there is nothing; nor is there for a name that leads here from
    elsewhere (DNS rebinding), a page of another origin, a link on another site, another method, or another form.
    """
    running, client, (run, _), _ = served
    assert len(client.begin) >= 2 + 32 and running._socket.getsockname()[0] == "127.0.0.1"
    with server.Server(run) as second:
        secret = Client(second).begin
    other, begin = f"127.0.0.1:{client.port + 1}", client.begin
    begins = "/", "/favicon.ico", begin[:-2] + "/", begin[:-1], "/" + "a" * 32 + "/", "/../" + begin, "//", "/%2e%2e/"
    for name, wrong, error in (
        ("begin", (*begins, begin.swapcase(), "/%C3%A9/", secret), (404, "there is nothing at this address")),
        (
            "Host",
            ("evil.example", f"evil.example:{client.port}", "127.0.0.1", other, f"{client.host}.evil"),
            (403, "the request is for another host"),
        ),
        (
            "Origin",
            ("http://evil.example", f"https://{client.host}", f"http://{other}", "null", ""),
            (403, "the request comes from another origin"),
        ),
        ("Sec_Fetch_Site", ("cross-site", "same-site", "?"), (403, "the request comes from another site")),
        ("method", ("PUT", "DELETE", "OPTIONS", "TRACE", "CONNECTED"), (405, "only GET and POST are supported")),
        ("method", ("POST",), (415, "only JSON is supported")),
    ):
        for each in wrong:
            assert client.error("", **{name: each}) == error, each
    for name, right in (
        ("Host", f"localhost:{client.port}"),
        ("Origin", f"http://{client.host}"),
        ("Sec_Fetch_Site", "same-origin"),
        ("Sec_Fetch_Site", "none"),
    ):
        assert client.ask("row/0/0/0/0", **{name: right})[0] == 200


def test_every_answer_says_that_it_is_to_be_kept_from_others(served):
    """Pages, numbers, errors: not stored, not sniffed, not framed, not referred to, not shared; the page runs its own
    script alone.
    """
    expected = {
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "x-frame-options": "DENY",
        "cross-origin-resource-policy": "same-origin",
    }
    for path, more in (("row/0/0/0/0", {}), ("nothing", {}), ("", {"Host": "evil"}), ("", {})):
        headers = served[1].ask(path, **more)[1]
        assert headers.items() >= expected.items() and not {"server", "access-control-allow-origin"} & headers.keys()
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "'unsafe" not in policy and "connect-src 'self'" in policy and "script-src 'sha256-" in policy


# ---- what is asked ---------------------------------------------------------------------------------------------------

WRONG = {
    "row/0/0/0/300": "no such row: 300; expected 0 to 299",
    "row/0/0/4/0": "no such head: 4; expected 0 to 3",
    "row/0/2/0/0": "no such call: 2; expected 0 to 1",
    "row/2/0/0/0": "no such run: 2; expected 0 to 1",
    "row/0/0/0/-1": "no such row: -1",
    "row/0/0/0/1e2": "no such row: 1e2",
    "row/0/0/0/%D9%A3": "no such row: ٣",
    "row/0/0/0/" + "9" * 5000: "no such row: " + "9" * 40 + ";",
    "column/0/0/0/300": "no such column",
    "tile/0/0/0/share/11/0/0": "no such level",
    "tile/0/0/0/sum/0/0/0": "no such pool",
    "tile/0/0/0/share/0/2/0": "no such tile",
    "overview/0/2": "no such call",
    "pair/0/0/0/300": "no such column",
    "walk/0/0/0/300": "no such row",
    "tracks/0/0/9": "no such head",
    "matrices/0/0/4": "no such head",
    "products/0/0/0/300/0": "no such row",
    "products/0/0/0/0/300": "no such column",
}
NOWHERE = "nothing", "row", "row/0/0/0", "row/0/0/0/0/0", "etc/passwd", "../x", "%2e%2e/x"


def test_what_is_not_there_is_refused_in_a_sentence(served):
    """Every number of an address is checked against the run before anything is computed. No file is served, and no
    address that the page does not use.
    """
    for path, expected in WRONG.items():
        status, said = served[1].error(path)
        assert (status, said[: len(expected)]) == (400, expected)
    for path in NOWHERE:
        assert served[1].error(path) == (404, "there is nothing at this address")


def test_a_fault_of_regards_own_tells_the_client_nothing(served, monkeypatch):
    """An error that nobody foresaw is a sentence for the client; what it was stands in the terminal."""
    _, client, _, _ = served
    monkeypatch.setattr(routes.answers, "walk", lambda *given: 1 // 0)
    assert client.error("walk/0/0/0/0") == (500, "internal error in regard; the terminal of the server shows it")
    assert client.ask("column/0/0/0/0")[0] == 200


# ---- how much at once ------------------------------------------------------------------------------------------------


class Slow:
    """Stands in for the computing of tiles: it waits until it is let go, and counts."""

    def __init__(self, made):
        self.begun = self.now = self.most = 0
        self.go, self.lock, self.made = threading.Event(), threading.Lock(), made

    def __call__(self, *given, **more):
        with self.lock:
            self.begun, self.now = self.begun + 1, self.now + 1
            self.most = max(self.most, self.now)
        self.go.wait(20)
        with self.lock:
            self.now -= 1
        return self.made

    def reach(self, count):
        deadline = time.monotonic() + HANG
        while self.begun < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.begun >= count


@pytest.fixture
def slow(monkeypatch, served):
    found = Slow(routes.tile(served[2][0].calls[0], 0, 0, 0, 0))
    monkeypatch.setattr(routes, "tile", found)
    yield found
    found.go.set()


@pytest.fixture
def fresh(served):
    """A server that has computed nothing yet."""
    with server.Server(served[2][0]) as running:
        yield Client(running)


def test_only_so_many_tiles_are_computed_at_once(fresh, slow):
    """Twenty tiles asked for at once: two are computed, the others wait; rows and columns are answered meanwhile."""
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(fresh.ask, f"tile/0/0/{i % 4}/share/{i // 4}/0/0") for i in range(20)]
        slow.reach(2)
        assert fresh.ask("row/0/0/0/7")[0] == 200
        assert slow.begun == 2
        slow.go.set()
        assert [one.result()[0] for one in asked] == [200] * 20
    assert fresh.ask("tile/0/0/0/largest/0/0/0")[0] == 200 and slow.begun == 20  # for the other pool it is at hand
    assert slow.most == 2


def test_clients_that_go_away_do_no_harm(fresh, slow, capfd):
    """Forty clients leave before they are answered, half of them with a reset: what still waited is never computed, the
    next is served.
    """
    with contextlib.ExitStack() as gone:
        for i in range(40):
            one = gone.enter_context(socket.create_connection(("127.0.0.1", fresh.port)))
            path = f"{fresh.begin}tile/0/0/{i % 4}/share/{i % 9}/0/0"
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: {fresh.host}\r\n\r\n".encode())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", i % 2, 0))
        slow.reach(2)
    time.sleep(1)  # the server hears of it
    slow.go.set()
    assert fresh.ask("tile/0/1/0/share/0/0/0")[0] == 200
    assert slow.begun <= 4
    assert "Traceback" not in capfd.readouterr().err


def test_a_port_that_is_taken_is_refused(served):
    """The sentence names the port."""
    _, client, (run, _), _ = served
    with pytest.raises(rg.Refused, match=f"the port is not available(.|\n)*{client.port}"):
        server.Server(run, port=client.port)


def test_it_ends_while_a_connection_is_open(served):
    """A client that keeps its connection does not hold the server back."""
    with server.Server(served[2][0]) as running:
        parts = urllib.parse.urlsplit(running.address)
        held = socket.create_connection((parts.hostname, parts.port))
        held.sendall(f"GET {parts.path}row/0/0/0/7 HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        assert held.recv(15) == b"HTTP/1.1 200 OK"
        begun = time.monotonic()
    assert time.monotonic() < begun + 5
    held.close()


# Means over heads: their weights, figures and tiles against NumPy, and what a mean does with invalid weights.

INVALID = {(0, 3, 1): np.nan, (1, 4, 2): -0.5, (2, 2, 5): 0.3}  # one in each of three heads, the last behind the mask


def means(run):
    """(the word in a request, its mean, the exact mean) of the second call and of all calls."""
    every = np.array([call.weights() for call in run.calls])
    yield "mean", mean_of(run, run.calls[1], "mean"), every[1].mean(0)
    yield "all", mean_of(run, run.calls[1], "all"), every.mean((0, 1))


def test_a_mean_is_the_mean_of_the_weights():
    """Of the heads of a call, and of all calls; any rows and keys of it; a pair that some head allows is allowed."""
    run, other = (example(n=40, layers=3, heads=5, mask=mask)[0] for mask in (rg.causal(), None))
    for _, found, exact in means(run):
        np.testing.assert_allclose(found.weights([3, 7], slice(1, 4), 0)[0], exact[[3, 7], 1:4], rtol=1e-12)
        np.testing.assert_array_equal(found.allowed(), [np.tri(40)])
    mixed = Run("toy", "", run.axes, (run.calls[0], other.calls[1]))
    assert mean_of(mixed, mixed.calls[0], "all").allowed().all()


def test_the_figures_of_a_mean_are_those_of_its_rows(monkeypatch):
    """Entropy, maximum and the others, as they follow from the exact mean; too many weights have no entropy."""
    run, _ = example(n=40, mask=rg.causal())
    monkeypatch.setattr(routes, "PAIRS", 700)  # several blocks of rows and of heads
    special, free = np.array(run.axes["text"].special), np.tri(40, dtype=bool)
    for _, found, p in means(run):
        figures = found.tracks()
        rows = defined(p[None], free[None], p[None], special, 0)
        expected = {name: rows[name][0] for name in ("entropy", "spread", "maximum", "special", "attended")}
        expected |= {"received": p.sum(0), "readers": free.sum(0)}
        assert figures.keys() == expected.keys()
        for name, values in expected.items():
            assert figures[name].dtype == np.float32
            np.testing.assert_allclose(figures[name], values, rtol=2e-5, atol=2e-6, err_msg=name)
    monkeypatch.setattr(routes, "COUNTED", 1)
    figures = found.tracks()
    assert np.isnan(figures["entropy"]).all() and np.isnan(figures["maximum"]).all()
    np.testing.assert_allclose(figures["received"], p.sum(0), rtol=2e-5)


def test_invalid_weights_of_one_head_stay_visible():
    """The mean with a NaN or a weight out of range is NaN; one that a mask forbids in one head is so in the mean."""
    run, (exact,) = example(n=6, layers=1, mask=rg.causal())
    run = spoiled(run, exact, INVALID)
    coarse = unframed(routes.Responder([run]).answer("tile", "0", "0", "mean", "share", "0", "0", "0"))[1]["coarse"]
    assert np.argwhere(coarse == NAN).tolist() == [[3, 1], [4, 2]]
    assert coarse[2, 5] == LEAK and coarse[1, 5] == MASKED


def test_the_server_answers_for_means():
    """Tiles of every level, rows, columns and figures of a mean; the steps of a computation are those of one head."""
    run, _ = example(n=300, mask=rg.causal())
    responder = routes.Responder([run])
    for word, _, exact in means(run):
        cells = exact.reshape(150, 2, 150, 2)
        for request, right in {
            f"tile/0/1/{word}/share/0/1/0": exact[256:, :256],
            f"tile/0/1/{word}/share/1/0/0": cells.sum(3).mean(1),
            f"tile/0/1/{word}/largest/1/0/0": cells.max((1, 3)),
            f"row/0/1/{word}/7": exact[7],
            f"column/0/1/{word}/7": exact[:, 7],
        }.items():
            _, found = unframed(responder.answer(*request.split("/")))
            np.testing.assert_allclose(decode(**found), right, rtol=FINE_ERROR * 1.01, atol=1e-6)
        figures = unframed(responder.answer("tracks", "0", "1", word))[1]
        np.testing.assert_allclose(figures["received"], exact.sum(0), rtol=2e-5)
        with pytest.raises(rg.Refused, match="steps of a mean"):
            responder.answer("walk", "0", "1", word, "7")


def test_a_tile_of_many_heads_is_sampled(monkeypatch):
    """A tile of more weights than two seconds allow says which rows it is made of."""
    run, _ = example(n=300, mask=rg.causal())
    monkeypatch.setattr(routes, "MEAN_BUDGET", 6 * 300 * 300 // 2)
    header, found = unframed(routes.Responder([run]).answer("tile", "0", "0", "all", "share", "2", "0", "0"))
    assert header["exact"] == "sampled 1 row of 2"
    np.testing.assert_allclose(decode(**found).sum(1), 1, atol=0.02)
