"""Notes which test calls each function of regard, in every process of a test run.

`bench.mutants reach` puts a .pth file beside the installed packages, which runs this file when $REGARD_REACH names a
folder.
"""

import contextlib
import os
import sys
import threading
from pathlib import Path

SOURCE = str(Path(__file__).resolve().parents[2] / "src/regard/")
seen = set()


def called(frame, event, _):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(SOURCE):
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (code, test) in seen:
        return
    seen.add((code, test))
    file = os.path.join(os.environ["REGARD_REACH"], f"reached-{os.getpid()}")
    with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as notes:  # a test may forbid new files
        notes.write(f"{os.path.relpath(code.co_filename, SOURCE)}\t{code.co_firstlineno}\t{test}\n")


threading.setprofile(called)
sys.setprofile(called)
