"""Programs: runs the code of chapters for a page, in processes of their own and with a limit of time.

Such a process answers with the service of this module.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...common.errors import Refused, refuse
from ...sandbox.child import Child, Lost
from ..chapter import Chapter
from ..running import AT_ONCE, Recorded, run, runnable
from ..source import read_chapter

SECONDS = 180.0  # for one block; the slowest of the course trains a model
MOST = 1 << 26  # bytes of what a block gives


class Programs:
    """Runs blocks of chapters, from any number of threads. What a block gave is kept: it gives the same again."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, str], Recorded] = {}
        self._turns: dict[tuple[int, str], threading.Lock] = {}
        self._started: list[Child] = []
        self._free: queue.SimpleQueue[Child | None] = queue.SimpleQueue()  # None: a process that has to be started
        for _ in range(AT_ONCE):
            self._free.put(None)
        self._closed = False

    def run(self, chapter: Chapter, name: str) -> Recorded:
        """What a block gives. Raises Refused if it raises an error, or does not end."""
        key = chapter.number, name
        with self._turns.setdefault(key, threading.Lock()):  # two pages that request the same block run it once
            if key not in self._given:
                self._given[key] = self._run(chapter, name)
            return self._given[key]

    def close(self) -> None:
        """Ends all processes."""
        self._closed = True
        for child in self._started:
            if child.end.alive:
                child.kill()  # a thread that waits for it sees that it has ended
        for idle in [self._free.get() for _ in range(AT_ONCE)]:
            if idle:
                idle.end()
                idle.close()
            self._free.put(None)

    def _run(self, chapter: Chapter, name: str) -> Recorded:
        request = json.dumps([str(chapter.path.resolve()), name]).encode()
        child = self._free.get()
        try:
            if child is None:
                child = Child("regard.learn.pages.programs")
                self._started.append(child)
            if self._closed:
                child.kill()
            reply = json.loads(child.exchange(request, SECONDS, MOST))
        except Lost as lost:
            raise _failed(chapter, name, str(lost)) from None
        finally:
            if child and not child.end.alive:
                child.close()
                child = None
            self._free.put(child)
        if "error" in reply:
            raise _failed(chapter, name, reply["error"])
        return Recorded(**reply)


def _failed(chapter: Chapter, name: str, why: str) -> Exception:
    return refuse(
        "learn",
        f"the program {name} of chapter {chapter.number} did not give its result",
        why,
        f"a result within {SECONDS:g} s",
        "reload the page to run it again",
    )


def service() -> Callable[[bytes], bytes]:
    """The replies to requests: the path of a chapter and the name of a block."""
    return lambda request: json.dumps(_reply(*json.loads(request))).encode()


def _reply(chapter: str, name: str) -> dict[str, Any]:
    """What a block gives, or the error that it raises: a teacher's own chapter may have one."""
    block = next(each for each in runnable(read_chapter(Path(chapter))) if each.name == name)
    try:
        return asdict(run(block))
    except Refused as refused:
        return {"error": str(refused)}
    except Exception as error:  # whatever the code of a chapter raises is shown, and the next block runs
        return {"error": f"{type(error).__name__}: {error}"}
