"""Real processes on gloo: the bits of one process, and what the others say where one of them fails."""

import os
import socket
import subprocess
import sys

import pytest

import regard as rg
from tests.parallel import on_gloo
from tests.parallel.started import started
from tests.support.command import SRC

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow
MODULE = "tests.parallel.on_gloo"


def results(ranks, name, *arguments):
    """What each rank returned; all of them have ended well."""
    found = started(ranks, MODULE, name, *arguments)
    assert [status for status, _, _ in found] == [0] * ranks, found
    return [result for _, result, _ in found]


@pytest.fixture(scope="module")
def of_two():
    """What each of two ranks computes in one start."""
    return results(2, "of_two", 10, 8)


def alone(rules, tensors):
    """Output and gradients of one process."""
    *given, dout = tensors
    leaves = [each.clone().requires_grad_() for each in given]
    out = rg.attention(*leaves, **rules)
    out.backward(dout)
    return out.detach(), *(each.grad for each in leaves)


def test_the_bits_of_one_process():
    """Outputs and gradients of each of four ranks equal those of one process: placements, DTensors, rows × heads."""
    expected = {name: alone(rules, on_gloo.whole()) for name, (_, rules) in on_gloo.CASES.items()}
    for rank, found in enumerate(results(4, "of_four")):
        assert len(found) == 5
        for (name, way), (positions, *arrays) in found.items():
            for what, one, other in zip(("out", "dq", "dk", "dv"), arrays, expected[name], strict=True):
                assert torch.equal(one, other[:, :, positions]), (rank, name, way, what)


def test_the_functions_of_gpus(of_two):
    """Two ranks that compute with them have the bits of one process, but for sums over ranks, which round twice."""
    expected = alone(on_gloo.CASES["window, dropout"][1], [each.bfloat16() for each in on_gloo.whole()])
    for (positions, *arrays), _, _ in of_two:
        wanted = [each[:, :, positions] for each in expected]
        assert torch.equal(arrays[0], wanted[0]) and torch.equal(arrays[1], wanted[1])
        torch.testing.assert_close(arrays[2:], wanted[2:], rtol=0.02, atol=0.02)


def test_steps_of_training(of_two):
    """A layer is trained on two ranks: its losses are those of one process to rounding."""
    one, two = on_gloo.trained(10, alone=True), of_two[0][1]
    assert one[-1] < one[0]
    assert two == pytest.approx(one, rel=1e-6)


def test_texts(of_two):
    """Two processes continue a prompt whose keys need twice the storage of each, as one process with more does."""
    for rank, (_, _, (greedy, full, drawn, differ, methods, words)) in enumerate(of_two):
        assert greedy[0] == greedy[1] and len(greedy[0][0]) == 8
        assert "the storage is full" in full
        assert drawn[0] == drawn[1] and [len(each) for each in drawn[0]] == [4, 8]
        assert "the ranks disagree about the new keys" in differ
        assert "the ranks disagree about the method\n  given     rank 0: drop; rank 1: add" in methods
        assert all(f"rank {rank} of 2: {(1024, 983)[rank]:,} of 2,007 positions" in each for each in words)


def test_refusals_disagreement_and_the_end_of_a_rank():
    """A refusal is raised on every rank word for word, and ranks that disagree are named; the ranks can go on after
    both. Where a rank ended, the others name it, and end.
    """
    first, ended, last = started(3, MODULE, "fails")
    assert ended[:2] == (7, None)
    for status, (refused, disagreed, finite, lost), _ in (first, last):
        assert status == 0 and finite
        assert refused[:2] == (
            "Refused",
            "parallel.attention: scale is not a number\n  given     nan\n  expected  a finite number\n"
            "  fix       omit it for 1/√D",
        )
        assert disagreed[0] == "Refused"
        assert disagreed[1].startswith(
            "parallel.attention: the ranks disagree about the mask\n  given     ranks 0, 1: key <= query; rank 2: "
        )
        assert lost[0] == "Lost"
        assert lost[1].startswith("rank 1 ") and "(parallel.attention: agreement)" in lost[1]


@pytest.mark.sweep
def test_a_late_rank_is_named():
    """The others wait for the time that was given; the late rank learns that they gave up."""
    one, two, late = results(3, "is_late", 5)
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
from regard.parallel.torchrun import joined

gc.disable()
def names():
    found = set()
    for each in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it ends just now
            found.add(each.read_text().strip())
    return found

with joined(60) as transport:
    transport.gather("greeting", b"hello")
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
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": SRC}
    done = subprocess.run(
        [sys.executable, "-c", ENDING], env={**os.environ, **rank}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]
