"""Machine code on disk: what was written comes back, and nothing else is ever loaded."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from regard.engines.jit.code import build, disk
from regard.language import analysis as readings
from tests.support import import_graph
from tests.support.kernels import fresh
from tests.support.lanes import by_name

READS_RULES = Path(readings.__file__).relative_to(import_graph.SOURCE)
DIGEST, OTHER, CODE = "ab" * 32, "cd" * 32, bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found, why = disk.place()
    assert found is not None, why
    return found


@pytest.fixture
def stored(folder) -> Path:
    """A cache with one kernel."""
    disk.store(DIGEST, CODE)
    assert disk.fetch(DIGEST) == CODE
    return folder / f"{DIGEST}.o"


# ---- the file --------------------------------------------------------------------------------------------------------


def test_every_cut_and_every_flipped_bit_is_noticed(stored):
    """However long a file is cut, and whichever of its bytes has a bit turned, it is not loaded."""
    content = stored.read_bytes()
    for place in [*range(80), len(content) // 2, len(content) - 1]:
        flipped = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        for damaged in (content[:place], flipped, content + b"\0"):
            stored.write_bytes(damaged)
            assert disk.fetch(DIGEST) is None


def not_loaded() -> bool:
    """Whether nothing is loaded, and nothing is kept of what is stored."""
    disk.store(OTHER, CODE)
    return disk.fetch(DIGEST) is None and disk.fetch(OTHER) is None


def test_a_file_under_another_name_is_not_loaded(stored):
    """The digest covers the cache key, so one kernel cannot replace another."""
    stored.rename(stored.with_name(f"{OTHER}.o"))
    assert disk.fetch(OTHER) is None


UNTRUSTED = {
    "symlink": lambda path, other: (path.rename(other), path.symlink_to(other)),
    "hard link": lambda path, other: other.hardlink_to(path),
    "folder": lambda path, other: (path.unlink(), path.mkdir()),
    "pipe": lambda path, other: (path.unlink(), os.mkfifo(path)),
    "group-writable": lambda path, other: path.chmod(0o620),
    "world-writable": lambda path, other: path.chmod(0o602),
}


@by_name("change", UNTRUSTED)
def test_only_a_plain_file_of_ones_own_is_loaded(stored, tmp_path, change):
    """Not a link, not a file with a second name, not a pipe (which would also block indefinitely), not what others may
    write.
    """
    change(stored, tmp_path / "elsewhere")
    assert disk.fetch(DIGEST) is None


@pytest.mark.parametrize("size", [disk.LARGEST + 1, 1 << 33, 1 << 42])
def test_a_file_that_was_made_larger_is_not_read(stored, size):
    """A file with a hole of terabytes takes no room on disk, and would take all memory."""
    os.truncate(stored, size)
    assert stored.stat().st_size == size
    assert disk.fetch(DIGEST) is None
    disk.store(DIGEST, CODE)
    assert disk.fetch(DIGEST) == CODE


@pytest.mark.parametrize("home", ["", "/", "//", "relative", ".", "~"])
@pytest.mark.parametrize("named", ["", "relative", "somewhere/below", "~/cache", None])
def test_without_a_home_nothing_is_kept(home, named, monkeypatch, tmp_path):
    """A service without a home: relative paths are ignored, and no folder is made in the root or the current folder,
    or named ~.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    if home == "~":  # what expanduser returns for a user without a home
        monkeypatch.setattr(disk.os.path, "expanduser", lambda path: path)
    assert disk.place() == (None, "the home folder is unknown")
    assert not_loaded()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_owner_is_not_loaded(stored):
    """A file of another user could be changed at any time."""
    os.chown(stored, 12345, -1)
    assert disk.fetch(DIGEST) is None


# ---- the folder ------------------------------------------------------------------------------------------------------


def test_the_folder_is_for_its_owner_alone(folder):
    """Folders that are created can be read by the owner only."""
    assert [each.stat().st_mode & 0o777 for each in (folder, folder.parent)] == [0o700, 0o700]
    assert disk.place() == (folder, "only this user can write there")


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(stored, mode):
    """Neither to load from nor to store in, sticky or not."""
    stored.parent.chmod(mode)
    assert disk.place() == (None, f"{stored.parent} can be written by others")
    assert not_loaded()
    assert [path.name for path in stored.parent.iterdir()] == [stored.name]


@pytest.mark.parametrize(
    ("mode", "trusted"), [(0o755, True), (0o775, False), (0o777, False), (0o1777, True), (0o1775, True)]
)
def test_folders_above_count_too(stored, tmp_path, mode, trusted):
    """Who can write in a folder above can put another folder in place of ours, unless it is sticky, as /tmp is."""
    tmp_path.chmod(mode)
    assert (disk.place()[0] is not None) == (disk.fetch(DIGEST) == CODE) == trusted
    tmp_path.chmod(0o700)


def test_a_symlinked_folder(stored, tmp_path, monkeypatch):
    """`regard` itself may not be a link; a link above it is followed, and what it leads to is judged."""
    stored.parent.symlink_to(stored.parent.rename(tmp_path / "real"))
    assert disk.place() == (None, f"{stored.parent} is not a folder")
    assert disk.fetch(DIGEST) is None

    there, link = tmp_path / "open", tmp_path / "link"
    there.mkdir()
    there.chmod(0o777)
    link.symlink_to(there)
    monkeypatch.setenv("XDG_CACHE_HOME", str(link))
    assert disk.place() == (None, f"{there} can be written by others")


def test_a_folder_of_another_user_is_not_used(stored, monkeypatch):
    """Root with the HOME of a user, or a user with that of another: kernels are not shared."""
    mine = os.getuid()
    monkeypatch.setattr(disk.os, "getuid", lambda: mine + 1)
    why = disk.place()[1]
    assert disk.place()[0] is None and why.endswith("belongs to another user")
    assert disk.fetch(DIGEST) is None


def test_a_file_where_the_folder_should_be(tmp_path, monkeypatch):
    """Then nothing is kept, and nothing is broken."""
    (tmp_path / "regard").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not_loaded()
    assert disk.place() == (None, f"{tmp_path / 'regard'} is not a folder")


@pytest.mark.parametrize("fails", ["mkstemp", "replace"])
def test_a_full_or_read_only_disk_is_no_error(folder, monkeypatch, fails):
    """What cannot be written is not kept, and leaves nothing behind."""

    def refuses(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(disk.tempfile if fails == "mkstemp" else disk.os, fails, refuses)
    disk.store(DIGEST, CODE)
    monkeypatch.undo()
    assert list(folder.iterdir()) == []


# ---- the key ---------------------------------------------------------------------------------------------------------


def test_every_file_that_decides_the_code_is_part_of_the_key():
    """A kernel is found by its source too, so a new version of regard never loads what an older one compiled."""
    engine = [name for name in import_graph.modules() if name.startswith("regard.engines.jit")]
    missing = import_graph.reached(engine) - set(build.sources())
    assert sorted(str(path) for path in missing) == []


# ---- processes -------------------------------------------------------------------------------------------------------

CALL = """
    import numpy as np, regard as rg
    from regard.engines.jit.code import build
    compile, count = build._emit, []
    build._emit = lambda *args: count.append("forward" in str(args[0])) or compile(*args)
    q = np.random.default_rng(0).standard_normal((3, 40, 24), dtype=np.float32)
    expected = rg.attention(q, q, q, mask=rg.causal(), engine="reference")
    assert np.allclose(rg.attention(q, q, q, mask=rg.causal(), engine="jit"), expected, atol=1e-5)
    print(sum(count))
"""


def compilations(cache: Path, **place: str) -> int:
    """How many kernels a new process compiles for one call; `place` names another copy of regard."""
    return int(fresh(CALL, XDG_CACHE_HOME=str(cache), **place))


def test_a_kernel_is_compiled_once(tmp_path):
    """The second process finds what the first one compiled; what is damaged is compiled anew, and replaced. Where what
    reads a rule changes (in which precision a node is computed), an old kernel is not found.
    """
    copy, cache = tmp_path / "site" / "regard", tmp_path / "cache"
    shutil.copytree(import_graph.SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    place = {"PYTHONPATH": str(copy.parent)}
    assert compilations(cache, **place) == 1
    assert compilations(cache, **place) == 0
    for path in (cache / "regard").glob("*.o"):
        path.write_bytes(path.read_bytes()[:-100])
    assert compilations(cache, **place) == 1
    with open(copy / READS_RULES, "a") as file:
        file.write("\n# a change\n")
    assert compilations(cache, **place) == 1


def test_processes_that_write_at_once(tmp_path):
    """Three processes begin with an empty cache at the same time: all compute, and what they leave is whole."""
    with ThreadPoolExecutor(3) as team:
        list(team.map(compilations, [tmp_path] * 3))
    assert compilations(tmp_path) == 0
    assert not list((tmp_path / "regard").glob(".new-*"))
