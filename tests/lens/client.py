"""A client of the server of a page, and its frames."""

import json

import numpy as np

from regard.lens.runs import codes
from tests.support import client


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


class Client(client.Client):
    """Asks the server of a page."""

    def post(self, path, given, **headers):
        """Bytes, or what becomes JSON -> (status, what the JSON of the answer says)"""
        status, _, answer = self.ask(path, given, **headers)
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
