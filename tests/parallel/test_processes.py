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


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("ranks", "dtype"), [(2, "bfloat16"), (4, "float32")])
def test_the_bits_of_one_process(ranks, dtype):
    """Outputs and gradients of each rank equal those of one process: placements, DTensors, rows × heads."""
    q, k, v, dout = (each.to(getattr(torch, dtype)) for each in on_gloo.whole())
    expected = {}
    for name, rules in on_gloo.CASES.items():
        leaves = [each.clone().requires_grad_() for each in (q, k, v)]
        out = rg.attention(*leaves, **rules)
        out.backward(dout)
        expected[name] = [out.detach(), *(each.grad for each in leaves)]
    for rank, found in enumerate(results(ranks, "cases", dtype)):
        assert len(found) == 3 * len(expected) + {2: 1, 4: 2}[ranks]
        for (name, placement), (positions, *arrays) in found.items():
            for what, one, other in zip(("out", "dq", "dk", "dv"), arrays, expected[name], strict=True):
                if placement == "of GPUs" and what in ("dk", "dv"):  # sums over ranks are rounded twice
                    torch.testing.assert_close(one, other[:, :, positions], rtol=0.02, atol=0.02)
                else:
                    assert torch.equal(one, other[:, :, positions]), (rank, name, placement, what)


def test_steps_of_training():
    """A layer is trained on two ranks: its losses are those of one process to rounding."""
    one, two = on_gloo.trained(10, alone=True), results(2, "trained", 10)[0]
    assert one[-1] < one[0]
    assert two == pytest.approx(one, rel=1e-6)


def test_refusals_disagreement_and_the_end_of_a_rank():
    """A refusal is raised on every rank word for word, and ranks that disagree are named; the ranks can go on after
    both. Where a rank ended, the others name it within seconds, and end.
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
        assert lost[0] == "Lost" and lost[2] < 30
        assert lost[1].startswith("rank 1 ") and "(parallel.attention: agreement)" in lost[1]


def test_a_late_rank_is_named():
    """The others wait for the time that was given; the late rank learns that they gave up."""
    one, two, late = results(3, "is_late", 5)
    for kind, text, seconds in (one, two):
        assert kind == "Lost" and 5 <= seconds < 30
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
