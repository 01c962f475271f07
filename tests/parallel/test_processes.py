"""Real processes on gloo: the bits of one process, and what the others say where one of them fails."""

import socket
import sys

import pytest
import torch

import regard as rg
from tests.parallel import on_gloo
from tests.parallel.started import results, started
from tests.support.command import SRC
from tests.support.kernels import fresh

pytestmark = pytest.mark.slow
MODULE = "tests.parallel.on_gloo"


def alone(name, tensors):
    """Output and gradients of one process."""
    return on_gloo.step(on_gloo.attends(rg.attention, **on_gloo.CASES[name][1]), tensors)


def test_four_ranks(subtests):
    """One start of four ranks: outputs and gradients are those of one process, for placements, DTensors, rows × heads.
    A refusal is raised on every rank word for word, and ranks that disagree are named; the ranks can go on after both.
    Where a rank ended, the others name it, and end.
    """
    found = started(4, MODULE, "of_four")
    assert [status for status, _ in found] == [0, 7, 0, 0]
    with subtests.test("the bits of one process"):
        expected = {name: alone(name, on_gloo.whole()) for name in on_gloo.CASES}
        for rank, (_, (computed, _)) in enumerate(found):
            assert len(computed) == 5
            for (name, way), (positions, arrays) in computed.items():
                wanted = [each[:, :, positions] for each in expected[name]]
                assert all(map(torch.equal, arrays, wanted)), (rank, name, way)
    for _, (_, (refused, disagreed, finite, lost)) in found[:1] + found[2:]:
        assert [refused[0], disagreed[0], finite, lost[0]] == ["Refused", "Refused", True, "Lost"]
        assert refused[1] == (
            "parallel.attention: scale is not a number\n  given     nan\n  expected  a finite number\n"
            "  fix       omit it for 1/√D"
        )
        assert disagreed[1].startswith(
            "parallel.attention: the ranks disagree about the mask\n  given     ranks 0, 1, 3: key <= query; rank 2: "
        )
        assert lost[1].startswith("rank 1 ") and "(parallel.attention: agreement)" in lost[1]


def test_two_ranks(subtests):
    """One start of two ranks: with the functions of GPUs they have the bits of one process, but for sums over ranks,
    which round twice; they continue a prompt whose keys need twice the storage of each, as one process with more does.
    """
    found = results(2, MODULE, "of_two")
    with subtests.test("the functions of GPUs"):
        expected = alone("window, dropout", [each.bfloat16() for each in on_gloo.whole()])
        for (positions, arrays), _ in found:
            wanted = [each[:, :, positions] for each in expected]
            assert torch.equal(arrays[0], wanted[0]) and torch.equal(arrays[1], wanted[1])
            torch.testing.assert_close(arrays[2:], wanted[2:], rtol=0.02, atol=0.02)
    for rank, (_, (greedy, full, drawn, differ, methods, words)) in enumerate(found):
        assert greedy[0] == greedy[1] and len(greedy[0][0]) == 8
        assert "the storage is full" in full
        assert drawn[0] == drawn[1] and [len(each) for each in drawn[0]] == [4, 8]
        assert "the ranks disagree about the new keys" in differ
        assert "the ranks disagree about the method\n  given     rank 0: drop; rank 1: add" in methods
        assert all(f"rank {rank} of 2: {(1024, 983)[rank]:,} of 2,007 positions" in each for each in words)


@pytest.mark.sweep
def test_a_late_rank_is_named():
    """The others wait for the time that was given; the late rank learns that they gave up."""
    one, two, late = results(3, MODULE, "is_late", 5)
    for kind, text, seconds in (one, two):
        assert kind == "Lost" and seconds >= 5
        assert text.startswith(
            "rank 2 has not begun exchange 4 (parallel.attention: agreement); its last was exchange 3"
        )
    assert late[0] == "Lost" and "the other ranks gave up" in late[1]


ENDING = """
import contextlib
import gc
from pathlib import Path
from regard.parallel.exchange import gather
from regard.parallel.torchrun import joined

gc.disable()
def names():
    found = set()
    for each in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it ends just now
            found.add(each.read_text().strip())
    return found

with joined(60) as transport:
    gather(transport, "greeting", b"hello")
    cycle = [transport]
    cycle.append(cycle)
    print(any("gloo" in name for name in names()))
print(any("gloo" in name for name in names()))
"""


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of threads from /proc")
def test_no_thread_of_gloo_outlives_the_ranks():
    """One that frees its last tensor while Python shuts down aborts the process, although the work is done."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    assert fresh(ENDING, PYTHONPATH=SRC, **rank).split() == ["True", "False"]
