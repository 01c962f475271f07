"""A client of the server of a page, and its frames."""

import json

import numpy as np

from regard.lens.runs import codes
from tests.support import client


def unframed(raw):
    """(the header, the arrays by name) of a frame."""
    at = 4 + int.from_bytes(raw[:4], "little")
    header, found = json.loads(raw[4:at]), {}
    parts = [(np.dtype(part["dtype"]), part["shape"], part["name"]) for part in header["parts"]]
    count = sum(int(np.prod(shape)) for kind, shape, _ in parts if kind == np.float32)
    floats = np.frombuffer(raw, np.uint8, 4 * count, at).reshape(4, count).T.tobytes()
    raw, at = floats + raw[at + 4 * count :], 0
    for kind, shape, name in sorted(parts, key=lambda part: part[0] != np.float32):
        found[name] = np.frombuffer(raw, kind, int(np.prod(shape)), at).reshape(shape)
        at += found[name].nbytes + -found[name].nbytes % 4
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
