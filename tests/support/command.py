"""The command `regard`: called in this process, as almost every test does, or in a process of its own."""

import io
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from regard.cli import main
from tests import ROOT
from tests.support.waiting import HANG

SRC = str(ROOT / "src")


def regard(*arguments, input=None, cwd=None, **environment):
    """Calls the command in this process -> (status, stdout, stderr)."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
    status = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["regard", *map(os.fsdecode, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input or b""), "utf-8"))
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    return status, *(stream.buffer.getvalue().decode() for stream in streams.values())


def refused(*arguments, **more) -> str:
    """The one sentence of a command that is refused with status 2."""
    status, out, err = regard(*arguments, **more)
    assert (status, out) == (2, ""), err
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    return err


def done(*arguments, **more) -> str:
    """The output of a command that succeeds."""
    status, out, err = regard(*arguments, **more)
    assert status == 0, err
    return out


INTERRUPTED = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from regard.cli import main; main()"
)


def until_ctrl_c(*arguments):
    """Runs a command that serves in a process of its own until Ctrl-C -> (its address, the page there, what it prints
    after that).
    """
    running = subprocess.Popen(
        [sys.executable, "-u", "-c", INTERRUPTED, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )
    address = next(line for line in iter(running.stdout.readline, "") if "http://127.0.0.1:" in line).split()[-1]
    with urllib.request.urlopen(address) as reply:
        page = reply.read()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=HANG)
    assert (running.returncode, err) == (0, "")
    return address, page, out
