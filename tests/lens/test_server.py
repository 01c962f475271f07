"""The server of a page: numbers that are those of attention, for this machine and for who knows the secret, whatever
clients do.
"""

import dataclasses
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import regard as rg
from regard.language.measures import edges
from regard.lens.runs import codes
from regard.lens.viewer import routes, server
from regard.lens.viewer.embed import unframed
from tests import ROOT
from tests.support.browser import Opened, example, fault, words

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

N = 300


class Client:
    """Asks one server, in connections of its own."""

    def __init__(self, served):
        parts = urllib.parse.urlsplit(served.address)
        self.port, self.begin = parts.port, parts.path

    def ask(self, path, method="GET", begin=None, **headers):
        """-> (status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, (self.begin if begin is None else begin) + path, skip_host=True)
        for name, value in (
            {"Host": f"127.0.0.1:{self.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
        ).items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        connection.close()
        return found

    def frame(self, path):
        status, _, body = self.ask(path)
        assert status == 200, body
        return unframed(body)

    def error(self, path, **more):
        status, _, body = self.ask(path, **more)
        return status, json.loads(body)["error"]


@pytest.fixture(scope="module")
def served():
    """A server of a run of 300 tokens beside another, their exact weights, and a client."""
    run, exact = example(N, 2, 4, rg.causal() & rg.window(200), groups=2)
    other, exact_too = example(N, 2, 4, groups=2, seed=5)
    with server.Server(run, other) as running:
        yield running, Client(running), (run, other), (exact, exact_too)


# ---- the numbers -----------------------------------------------------------------------------------------------------


def shown(parts):
    return codes.decode(parts["coarse"], parts["fine"])


def near(found, exact):
    """Within what the codes keep; what is below 10⁻⁶ is shown as 0."""
    np.testing.assert_allclose(found, np.where(exact < 1e-6, 0, exact), rtol=codes.FINE_ERROR * 1.01, atol=1.01e-6)


def test_tiles_rows_and_columns_are_the_weights(served):
    """Every tile at the finest level, rows and columns of both runs: the exact weights, to 0.011 %."""
    _, client, _, weights = served
    for n, call, head in ((0, 0, 0), (0, 1, 3), (1, 0, 2)):
        exact = weights[n][call][head]
        for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
            for pool in ("share", "largest"):
                header, parts = client.frame(f"tile/{n}/{call}/{head}/{pool}/0/{row}/{column}")
                assert header["exact"] == "exact"
                near(shown(parts), exact[256 * row : 256 * (row + 1), 256 * column : 256 * (column + 1)])
        near(shown(client.frame(f"row/{n}/{call}/{head}/123")[1]), exact[123])
        near(shown(client.frame(f"column/{n}/{call}/{head}/45")[1]), exact[:, 45])
    coarse = client.frame("row/0/0/0/100")[1]["coarse"]
    assert (coarse[101:] == codes.MASKED).all() and (coarse[:101] != codes.MASKED).all()


def test_coarser_tiles_pool_the_weights(served):
    """A cell of 4 × 4 pairs shows the mean over its rows of the sum over its keys, or the largest weight in it."""
    _, client, _, ((exact, _), _) = served
    cells = exact[1].reshape(75, 4, 75, 4)
    near(shown(client.frame("tile/0/0/1/share/2/0/0")[1]), cells.sum(3).mean(1))
    near(shown(client.frame("tile/0/0/1/largest/2/0/0")[1]), cells.max((1, 3)))


def test_a_pair_is_shown_in_every_call_and_head(served):
    """The weight of one pair of positions in all calls between two axes."""
    _, client, _, (exact, _) = served
    header, parts = client.frame("pair/0/text/text/150/120")
    assert header["calls"] == [0, 1]
    near(shown(parts), np.concatenate([weights[:, 150, 120] for weights in exact]))


def test_axes_may_have_any_name():
    """Axes are asked for by the names that the page shows, with slashes, percent signs and spaces in them."""
    run, exact = example(6, 1, 2)
    axis = dataclasses.replace(run.axes["text"], name="a/b %2F\n?c#")
    call = dataclasses.replace(run.calls[0], queries=axis.name, keys=axis.name)
    with server.Server(dataclasses.replace(run, axes={axis.name: axis}, calls=(call,))) as second:
        client = Client(second)
        (shown_name,) = json.loads(client.ask("")[2].split(b'id="data">')[1].split(b"</script>")[0])["runs"][0]["axes"]
        _, parts = client.frame("pair/0/{0}/{0}/3/2".format(urllib.parse.quote(shown_name, safe="")))
        near(shown(parts), exact[0][:, 3, 2])


def test_tracks_walks_and_pictures_are_those_of_the_run(served):
    """Figures along the axes, the numbers of one row, and pictures of all heads."""
    _, client, (run, _), (exact, _) = served
    _, parts = client.frame("tracks/0/1/2")
    np.testing.assert_allclose(parts["maximum"], exact[1][2].max(-1), rtol=1e-5)
    np.testing.assert_allclose(parts["received"], exact[1][2].sum(0), rtol=1e-4)
    status, headers, body = client.ask("walk/0/1/2/77")
    walk = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    np.testing.assert_allclose(walk["p"], exact[1][2][77, walk["keys"]], rtol=1e-4, atol=1e-6)
    _, parts = client.frame("overview/0/0")
    cut = edges(N, parts["codes"].shape[1])
    pooled = np.add.reduceat(np.add.reduceat(exact[0], cut[:-1], 2), cut[:-1], 1) / np.diff(cut)[:, None]
    np.testing.assert_allclose(codes.decode(parts["codes"]), pooled, rtol=codes.COARSE_ERROR * 1.01, atol=1.01e-6)
    (bare,) = [dataclasses.replace(call, overview=None) for call in run.calls[:1]]
    assert unframed(routes.Responder([dataclasses.replace(run, calls=(bare,))]).answer("overview", "0", "0"))[1][
        "codes"
    ].shape == (
        4,
        128,
        128,
    )


# ---- who is let in ---------------------------------------------------------------------------------------------------


def test_only_who_knows_the_secret_is_answered(served):
    """Without the secret, or with a part of it, there is nothing; nor does the root or a path upwards lead anywhere."""
    _, client, _, _ = served
    assert len(client.begin) >= 2 + 32
    wrong = (
        "/",
        "/favicon.ico",
        client.begin[:-2] + "/",
        client.begin[:-1],
        "/" + "a" * (len(client.begin) - 2) + "/",
        "/../" + client.begin,
        "/row/0/0/0/0",
        client.begin.upper(),
        "/é/",
        "//",
        "/%2e%2e/",
    )
    for begin in wrong:
        if begin != client.begin:
            found = client.error("", begin=urllib.parse.quote(begin, safe="/%"))
            assert found == (404, "there is nothing at this address")


def test_secrets_differ_and_the_address_is_this_machine(served):
    """Every server has another secret, and none listens beyond this machine."""
    running, client, (run, _), _ = served
    with server.Server(run) as second:
        assert Client(second).begin != client.begin
        assert Client(second).error("", begin=client.begin) == (404, "there is nothing at this address")
    assert running.address.startswith("http://127.0.0.1:")
    assert running._socket.getsockname()[0] == "127.0.0.1"


def test_other_hosts_origins_and_sites_are_turned_away(served):
    """A name that leads here from elsewhere (DNS rebinding), a page of another origin, a link on another site: none
    gets an answer.
    """
    _, client, _, _ = served
    here = f"127.0.0.1:{client.port}"
    for host in (
        "evil.example",
        f"evil.example:{client.port}",
        "127.0.0.1",
        f"127.0.0.1:{client.port + 1}",
        f"{here}.evil.example",
        "",
        None,
    ):
        assert client.ask("", Host=host)[0] in (400, 403), host
    for origin in ("http://evil.example", f"https://{here}", f"http://127.0.0.1:{client.port + 1}", "null", ""):
        assert client.error("row/0/0/0/0", Origin=origin) == (403, "the request comes from another origin")
    for site in ("cross-site", "same-site", "?"):
        assert client.error("", Sec_Fetch_Site=site) == (403, "the request comes from another site")
    for more in (
        {},
        {"Host": f"localhost:{client.port}"},
        {"Origin": f"http://{here}"},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
    ):
        assert client.ask("row/0/0/0/0", **more)[0] == 200


def test_only_get_and_json_are_answered(served):
    """Nothing else can be sent, and what a method would do is not told."""
    _, client, _, _ = served
    assert client.error("", method="POST") == (415, "only JSON is supported")
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECTED"):
        assert client.error("", method=method) == (405, "only GET and POST are supported")
    assert client.ask("", method="HEAD")[0] == 405


def test_every_answer_says_that_it_is_to_be_kept_from_others(served):
    """Pages, numbers, errors: not stored, not sniffed, not framed, not referred to, not shared; the page runs its own
    script alone.
    """
    _, client, _, _ = served
    for path, more in (
        ("", {}),
        ("row/0/0/0/0", {}),
        ("row/0/0/0/999", {}),
        ("nothing", {}),
        ("", {"Host": "evil"}),
        ("", {"method": "POST"}),
    ):
        _, headers, _ = client.ask(path, **more)
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers and "access-control-allow-origin" not in headers
    policy = client.ask("")[1]["content-security-policy"]
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
    "row/0/0/0/%20": "no such row",
    "row/0/0/0/" + "9" * 5000: "no such row: " + "9" * 40 + ";",
    "column/0/0/0/300": "no such column",
    "tile/0/0/0/share/11/0/0": "no such level",
    "tile/0/0/0/sum/0/0/0": "no such pool",
    "tile/0/0/0/share/0/2/0": "no such tile",
    "overview/0/2": "no such call",
    "pair/0/text/nowhere/0/0": "no such axes",
    "pair/0/text/text/0/300": "no such column",
    "walk/0/0/0/300": "no such row",
    "tracks/0/0/9": "no such head",
}


@pytest.mark.parametrize("path", WRONG, ids=[path[:30] for path in WRONG])
def test_what_is_not_there_is_refused_in_a_sentence(served, path):
    """Every number of an address is checked against the run before anything is computed."""
    status, said = served[1].error(path)
    assert (status, said[: len(WRONG[path])]) == (400, WRONG[path])


@pytest.mark.parametrize(
    "path", ["nothing", "row", "row/0/0/0", "row/0/0/0/0/0", "tile/0/0/0/share/0/0", "etc/passwd", "../x", "%2e%2e/x"]
)
def test_there_is_nothing_else(served, path):
    """No file is served, and no address that the page does not use."""
    assert served[1].error(path) == (404, "there is nothing at this address")


def test_a_fault_of_regards_own_tells_the_client_nothing(served, monkeypatch, capfd):
    """An error that nobody foresaw is a sentence for the client; what it was stands in the terminal."""
    _, client, _, _ = served
    monkeypatch.setattr(routes.answers, "row", lambda *given: 1 // 0)
    status, said = client.error("row/0/0/0/0")
    assert status == 500 and "Error" not in said and "File" not in said
    assert client.ask("column/0/0/0/0")[0] == 200


def test_faults_of_the_model_reach_the_page(served):
    """NaN, weight where the mask forbids it, and hostile tokens: the page is sent whole, and the codes say what is
    wrong.
    """
    run, _ = example(6, 1, 2, rg.causal(), tokens=("</script>", "\ud800", "\x00", '"', "'", "a"))
    broken = run.calls[0].weights().copy()
    broken[0, 1, 3], broken[1, 2, 2] = 0.25, np.nan
    with server.Server(fault(run, q=None, k=None, given=broken, notes={"difference": np.nan})) as second:
        client = Client(second)
        status, _, html = client.ask("")
        assert status == 200 and html.decode().count("</script>") == html.decode().count("<script")
        coarse = client.frame("tile/0/0/0/share/0/0/0")[1]["coarse"]
        assert coarse[1, 3] == codes.LEAK and coarse[1, 4] == codes.MASKED
        assert client.frame("row/0/0/1/2")[1]["coarse"][2] == codes.NAN
        for head, code in enumerate((codes.LEAK, codes.NAN)):  # as a single cell too
            for pool in ("share", "largest"):
                assert client.frame(f"tile/0/0/{head}/{pool}/3/0/0")[1]["coarse"].tolist() == [[code]]
        picture = client.frame("overview/0/0")[1]["codes"]
        assert np.argwhere((picture == codes.LEAK) | (picture == codes.NAN)).tolist() == [[0, 1, 3], [1, 2, 2]]


# ---- how much at once ------------------------------------------------------------------------------------------------


class Slow:
    """Stands in for the computing of tiles: it waits until it is let go, and counts."""

    def __init__(self, monkeypatch, made):
        self.begun = self.now = self.most = 0
        self.go, self.lock, self.made = threading.Event(), threading.Lock(), made
        monkeypatch.setattr(routes, "tile", self)

    def __call__(self, *given):
        with self.lock:
            self.begun, self.now = self.begun + 1, self.now + 1
            self.most = max(self.most, self.now)
        self.go.wait(20)
        with self.lock:
            self.now -= 1
        return self.made

    def reach(self, count):
        for _ in range(6000):
            if self.begun >= count:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.begun} of {count} have begun")


@pytest.fixture
def slow(monkeypatch, served):
    made = routes.tile(served[2][0].calls[0], 0, 0, 0, 0)
    found = Slow(monkeypatch, made)
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
    assert slow.most == 2


def test_a_tile_is_computed_once(fresh, slow):
    """Asked again, and for the other pool, a tile is at hand."""
    slow.go.set()
    bodies = [fresh.ask(f"tile/0/0/1/{pool}/0/0/0")[2] for pool in ("share", "largest", "share")]
    assert bodies[0] == bodies[2] and slow.begun == 1


def left(client, path, rude):
    """Asks and goes before the answer: with a reset where it is rude."""
    found = socket.create_connection(("127.0.0.1", client.port))
    found.sendall(f"GET {client.begin}{path} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode())
    if rude:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return found


def test_clients_that_go_away_do_no_harm(fresh, slow, capfd):
    """Forty clients leave before they are answered, half of them with a reset: what still waited is never computed, the
    next is served.
    """
    gone = [left(fresh, f"tile/0/0/{i % 4}/share/{i % 9}/0/0", rude=i % 2 == 0) for i in range(40)]
    slow.reach(2)
    for one in gone:
        one.close()
    time.sleep(1)  # the server hears of it
    slow.go.set()
    assert fresh.ask("tile/0/1/0/share/0/0/0")[0] == 200
    assert slow.begun <= 4
    assert "Traceback" not in capfd.readouterr().err


def test_half_a_request_does_no_harm(fresh, capfd):
    """Clients that send half a request, rubbish, or far too much, and go: the server answers the next one."""
    host = f"Host: 127.0.0.1:{fresh.port}\r\n"
    for said in (
        "",
        "GET ",
        "GET / HTTP/1.1\r\nHost: ",
        "\x16\x03\x01\x00" * 9,
        f"GET {fresh.begin}{'a' * 200_000} HTTP/1.1\r\n{host}\r\n",
        f"GET {fresh.begin} HTTP/1.1\r\n{host}" + "X: y\r\n" * 20_000,
        f"GET {fresh.begin} HTTP/1.1\r\n{host}{host}\r\n",
    ):
        with socket.create_connection(("127.0.0.1", fresh.port)) as found:
            try:
                found.sendall(said.encode("latin-1"))
                found.shutdown(socket.SHUT_WR)
                found.recv(100)
            except OSError:
                pass  # it hangs up on who says too much
    assert fresh.ask("")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_kept_is_bounded():
    """Tiles are kept up to so many bytes, and those that were asked for last: what is asked for again and again is
    computed once.
    """
    share, largest = np.zeros((2, 8, 8), np.float32)
    made = routes.Tile(share, largest, np.zeros((8, 8), bool), np.zeros((8, 8), np.uint8), "exact")
    kept, computed = routes.TileCache(5 * 640), []
    for i in range(9):
        for name in (i, 0):
            kept.get((name,), lambda name=name: computed.append(name) or made)
        assert kept.size == 640 * len(kept.held) <= kept.most
    assert computed == list(range(9))
    assert sorted(kept.held) == [(0,), (5,), (6,), (7,), (8,)]


def test_a_port_that_is_taken_is_refused(served):
    """The sentence names the port."""
    _, client, (run, _), _ = served
    with pytest.raises(rg.Refused, match=f"the port is not available(.|\n)*{client.port}"):
        server.Server(run, port=client.port)


ALONE = """
from tests.support.browser import example
from regard.lens.viewer.server import serve
serve(example(50)[0])
print("ended")
"""


def test_ctrl_c_ends_it():
    """The address is told first; Ctrl-C ends the server at once and without a word, also while a connection is open."""
    alone = subprocess.Popen(
        [sys.executable, "-u", "-c", ALONE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
    )
    address = alone.stdout.readline().strip()
    parts = urllib.parse.urlsplit(address)
    held = socket.create_connection(("127.0.0.1", parts.port))
    held.sendall(f"GET {parts.path}row/0/0/0/7 HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    assert held.recv(15) == b"HTTP/1.1 200 OK"
    alone.send_signal(signal.SIGINT)
    out, err = alone.communicate(timeout=60)
    held.close()
    assert (alone.returncode, out, err) == (0, "ended\n", "")


# ---- in the browser --------------------------------------------------------------------------------------------------


def test_the_page_draws_itself_from_the_server(served, chromium):
    """In Chromium the served page shows the exact weights, says nothing to the console, and asks its own server
    alone.
    """
    running, _, _, (exact, _) = served
    opened = Opened(chromium, running.address)
    opened.choose(call=1, head=2, query=150)
    found = opened.asks("row", 0, 1, 2, 150)
    near(codes.decode(np.array(found["coarse"], np.uint8), np.array(found["fine"], np.uint8)), exact[1][2][150])
    assert words(N)[150].strip() in opened.text("#sentence")
    assert opened.text("#problem") == ""
    assert opened.said == []
    assert [url for url in opened.asked if not re.match(re.escape(running.address) + "|data:|blob:", url)] == []
    opened.context.close()
