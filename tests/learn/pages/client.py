"""A client of the server of the course, and the server in a process of its own."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

from tests.support import client
from tests.support.command import SRC


class Client(client.Client):
    """Asks the server of the course."""

    def post(self, what, name=None, body=None, status=200, **given):
        """The answer to a body, or to what is said, of a part of chapter 3 if one is named."""
        of_part = {} if name is None else {"chapter": 3, "name": name}
        found, _, answer = self.ask(what, of_part | given if body is None else body)
        assert found == status, (found, answer)
        return json.loads(answer)

    def refused(self, what, *name, **given):
        return self.post(what, *name, status=400, **given)["error"]

    def changes(self, known):
        status, _, body = self.ask(f"changes/{known}")
        assert status == 200, body
        return json.loads(body)

    def result(self, key, seconds=30.0, than=None):
        """Waits until the result of an exercise is there, and is another one than the one given."""
        until, found = time.monotonic() + seconds, {"version": 0}
        while time.monotonic() < until:
            found = self.changes(found["version"])
            if not found["checking"] and found["results"].get(key) not in (None, than):
                return found["results"][key]
        raise AssertionError(found)


ALONE = """
import signal, sys
from pathlib import Path
from regard.learn.pages.server import CourseServer
from regard.learn.source import read_chapter

signal.signal(signal.SIGINT, signal.default_int_handler)
folder, *files = map(Path, sys.argv[1:])
server = CourseServer(folder, [read_chapter(file) for file in files])
print(server.address)
server.run()
print("ended")
"""


def alone(folder, chapters):
    """The server in a process of its own -> (the process, its client)."""
    files = [str(chapter.path) for chapter in chapters]
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", ALONE, str(folder), *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )
    return process, Client(SimpleNamespace(address=process.stdout.readline().strip()))
