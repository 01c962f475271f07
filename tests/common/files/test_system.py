"""Files as the systems have them: locks between processes, no links."""

import errno
import os
import subprocess
import sys

import pytest

from regard.common.files import output as system
from tests.support.command import SRC

HOLD = """
import sys
from pathlib import Path
from regard.common.files import output as system
path = Path(sys.argv[1])
handle = system.lock_folder(path) if path.is_dir() else path.open("ab")
if not path.is_dir():
    assert system.lock(handle.fileno())
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_lock_is_one_of_processes_and_ends_with_them(kind, tmp_path):
    """While another process holds it, it cannot be had; after it was killed, it can."""
    path = tmp_path / "there"
    path.mkdir() if kind == "folder" else path.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": SRC},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        if kind == "folder":
            with pytest.raises(BlockingIOError):
                system.lock_folder(path)
        else:
            with path.open("ab") as file:
                assert not system.lock(file.fileno())
    finally:
        holder.kill()
        holder.communicate()
    if kind == "folder":
        os.close(system.lock_folder(path))
    else:
        with path.open("ab") as file:
            assert system.lock(file.fileno())


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
