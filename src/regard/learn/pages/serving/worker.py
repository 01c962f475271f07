"""The process in which the code of chapters runs: one block after another, as the server requests.

CONNECTION, LIFELINE: as in regard.learn.checking.worker
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....common.errors import Refused
from ....conformance.process.frames import read_frame, write_frame
from ....conformance.process.worker import end_with, flush, leave
from ...source import read_chapter
from ..recorded import run, runnable


def main(connection: int, lifeline: int) -> None:
    """Answers requests until the parent closes the connection."""
    end_with(lifeline)
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)
    while (request := read_frame(connection)) is not None:
        reply = _reply(*json.loads(request))
        flush()
        write_frame(connection, json.dumps(reply).encode())
    leave()


def _reply(chapter: str, name: str) -> dict[str, Any]:
    """What a block gives, or the error that it raises: a teacher's own chapter may have one."""
    block = next(each for each in runnable(read_chapter(Path(chapter))) if each.name == name)
    try:
        return asdict(run(block))
    except Refused as refused:
        return {"error": str(refused)}
    except Exception as error:  # whatever the code of a chapter raises is shown, and the next block runs
        return {"error": f"{type(error).__name__}: {error}"}
