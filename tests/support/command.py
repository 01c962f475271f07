"""The command `regard`: called in this process, as almost every test does, or in a process of its own."""

import io
import os
import sys

import pytest

from regard.cli import main
from tests import ROOT

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
