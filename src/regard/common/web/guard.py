"""Guard: who may talk to a local server. Only a page that it wrote itself, in a browser on this machine."""

from __future__ import annotations

import hmac
import json

NOT_FOUND = "there is nothing at this address"
HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}


class Guard:
    """Accepts requests with the right host and secret: GET from this page or typed by hand, POST of JSON from this
    page; rejects all others.
    """

    def __init__(self, app, begin: bytes, port: int):
        self.app, self.begin = app, begin
        self.hosts = [f"{host}:{port}".encode() for host in ("127.0.0.1", "localhost")]

    async def __call__(self, scope, receive, send) -> None:
        async def guarded(message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*(HEADERS | dict(message["headers"])).items()]
            await send(message)

        status, error = self.refusal(scope)
        if not error:
            await self.app(scope, receive, guarded)
            return
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await guarded({"type": "http.response.start", "status": status, "headers": headers})
        await guarded({"type": "http.response.body", "body": body})

    def refusal(self, scope) -> tuple[int, str]:
        """(status, reason) of a rejected request, or (200, "")."""

        def given(name: bytes) -> list[bytes]:
            return [value.lower() for header, value in scope["headers"] if header.lower() == name]

        if len(given(b"host")) != 1 or given(b"host")[0] not in self.hosts:
            return 403, "the request is for another host"
        if any(origin not in [b"http://" + host for host in self.hosts] for origin in given(b"origin")):
            return 403, "the request comes from another origin"
        if any(site not in (b"same-origin", b"none") for site in given(b"sec-fetch-site")):
            return 403, "the request comes from another site"
        # A comparison in constant time.
        if not hmac.compare_digest(scope["raw_path"][: len(self.begin)], self.begin):
            return 404, NOT_FOUND
        if scope["method"] == "POST" and given(b"content-type") != [b"application/json"]:
            return 415, "only JSON is supported"  # which no other site can send without asking this server first
        return (200, "") if scope["method"] in ("GET", "POST") else (405, "only GET and POST are supported")
