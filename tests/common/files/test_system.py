"""Files as the systems have them: locks between processes, no links."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.common.files import output as system
from tests import ROOT
from tests.support.command import SRC

HOLD = """
import sys
from tests.common.files.test_system import held
assert held(sys.argv[1]) is not None
print("locked", flush=True)
sys.stdin.read()
"""


def held(path):
    """The lock of a file or a folder, or None if another process has it."""
    if os.path.isdir(path):
        with contextlib.suppress(BlockingIOError):
            return system.lock_folder(Path(path))
        return None
    handle = os.open(path, os.O_RDWR)
    if system.lock(handle):
        return handle
    os.close(handle)
    return None


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_lock_is_one_of_processes_and_ends_with_them(kind, tmp_path):
    """While another process holds it, it cannot be had; after it was killed, it can."""
    path = tmp_path / "there"
    path.mkdir() if kind == "folder" else path.touch()
    words = [sys.executable, "-c", HOLD, str(path)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    holder = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": SRC}, **streams)
    try:
        assert holder.stdout.readline() == "locked\n"
        assert held(path) is None
    finally:
        holder.kill()
        holder.communicate()
    os.close(held(path))


def test_links_are_not_read(tmp_path):
    """A link raises an error, and leaves no file open."""
    (tmp_path / "plain").write_bytes(b"some bytes")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    handle = system.open_plain(tmp_path / "plain")
    try:
        assert system.read_at(handle, 5, 5) == b"bytes"
    finally:
        os.close(handle)
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(OSError) as refused:
        system.open_plain(tmp_path / "link")
    assert refused.value.errno == errno.ELOOP
    assert sys.platform != "linux" or len(os.listdir("/proc/self/fd")) == before
    for name in ("plain", "link"):
        with pytest.raises(FileExistsError):
            system.create(tmp_path / name)
