"""A client of the servers of regard."""

import contextlib
import http.client
import json
import urllib.parse

from tests.support.waiting import HANG


class Client:
    """Asks one server, in connections of its own."""

    def __init__(self, server):
        parts = urllib.parse.urlsplit(server.address)
        self.port, self.begin, self.host = parts.port, parts.path, parts.netloc

    def ask(self, path, given=None, method=None, begin=None, **headers):
        """-> (status, headers, body); given: what is posted as JSON, or bytes"""
        body = given if isinstance(given, bytes | None) else json.dumps(given).encode()
        if body is not None:
            method, headers = "POST", {"Content_Type": "application/json"} | headers
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)) as connection:
            connection.request(method or "GET", (self.begin if begin is None else begin) + path, body, named)
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
