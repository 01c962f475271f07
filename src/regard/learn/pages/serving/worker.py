"""The service of the code of chapters: it runs one block after another, as the server requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....common.errors import Refused
from ...running import run, runnable
from ...source import read_chapter


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
