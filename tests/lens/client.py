"""A client of the server of a page, and its frames."""

import contextlib
import http.client
import json
import urllib.parse

import numpy as np

from regard.lens.runs import codes
from tests.support.waiting import HANG


def unframed(raw):
    """(the header, the arrays by name) of a frame."""
    at = 4 + int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4:at])
    found = {}
    for part in header["parts"]:
        at += -at % 4
        count = int(np.prod(part["shape"]))
        found[part["name"]] = np.frombuffer(raw, part["dtype"], count, at).reshape(part["shape"])
        at += found[part["name"]].nbytes
    return header, found


class Client:
    """Asks one server, in connections of its own."""

    def __init__(self, served):
        parts = urllib.parse.urlsplit(served.address)
        self.port, self.begin, self.host = parts.port, parts.path, parts.netloc

    def ask(self, path, method="GET", begin=None, body=None, **headers):
        """-> (status, headers, body)"""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)) as connection:
            connection.request(method, (self.begin if begin is None else begin) + path, body, named)
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()

    def post(self, path, given, **headers):
        """Bytes, or what becomes JSON -> (status, what the JSON of the answer says)"""
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        status, _, answer = self.ask(path, "POST", body=body, **{"Content_Type": "application/json"} | headers)
        return status, json.loads(answer)

    def frame(self, path):
        status, _, body = self.ask(path)
        assert status == 200, body
        return unframed(body)

    def weights(self, path):
        """The weights of a tile, row, column, pair or overview."""
        _, parts = self.frame(path)
        return codes.decode(parts["codes"]) if "codes" in parts else codes.decode(parts["coarse"], parts["fine"])

    def error(self, path, **more):
        status, _, body = self.ask(path, **more)
        return status, json.loads(body)["error"]


def near(found, exact, error=codes.FINE_ERROR):
    """Within what the codes keep; what is below 10⁻⁶ is shown as 0."""
    np.testing.assert_allclose(found, np.where(exact < 1e-6, 0, exact), rtol=error * 1.01, atol=1.01e-6)
