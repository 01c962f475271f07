"""The command `regard`, in processes of its own."""

import os
import subprocess
import sys

from tests import ROOT

SRC = str(ROOT / "src")


def regard(*arguments, input=None, cwd=None, **environment):
    """Runs the command in a process of its own -> (status, stdout, stderr)."""
    done = subprocess.run(
        [sys.executable, "-m", "regard", *arguments],
        input=input,
        cwd=cwd,
        capture_output=True,
        timeout=120,
        stdin=subprocess.DEVNULL if input is None else None,
        env={**os.environ, "PYTHONPATH": SRC, "HF_HUB_OFFLINE": "1", **environment},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def refused(*arguments, **more) -> str:
    """The one sentence of a command that is refused with status 2."""
    status, out, err = regard(*arguments, **more)
    assert (status, out) == (2, ""), err
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    return err
