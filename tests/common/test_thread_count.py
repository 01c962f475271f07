"""The number of threads: what is set, in which order, and where it is valid."""

import concurrent.futures
import math
import os
import random
import subprocess
import sys
import textwrap
from contextlib import ExitStack

import numpy as np
import pytest

import regard as rg
from regard.common import thread_count
from regard.common.thread_count import MOST, count, limit, quota
from tests.support.refusals import refusing
from tests.support.waiting import HANG


def fresh(*words, **environment):
    """The words that a new process of Python prints."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", thread_count.VARIABLE)}
    words = [sys.executable, *map(textwrap.dedent, words)]
    done = subprocess.run(words, env=kept | environment, text=True, capture_output=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(autouse=True)
def no_setting():
    """No test leaves a number behind."""
    default = count()
    yield default
    rg.threads(None)
    assert count() == default


# ---- settings of a program -------------------------------------------------------------------------------------------


def test_settings_and_blocks_in_any_order(no_setting):
    """Random programs of settings and nested blocks: the number is that of the inner block, or the last setting."""
    chance = random.Random(0)
    for _ in range(200):
        process, blocks = None, []
        rg.threads(None)
        with ExitStack() as stack:
            for _ in range(chance.randrange(12)):
                number = chance.choice([None, 1, 2, 3, 7, MOST])
                if chance.random() < 0.5:
                    rg.threads(number)
                    process = number
                else:
                    stack.enter_context(chance.choice([rg.threads, limit])(number))
                    blocks.append(number)
                assert count() == ([process, *blocks][-1] or no_setting)
                with concurrent.futures.ThreadPoolExecutor(1) as other:
                    assert other.submit(count).result() == (process or no_setting)
        assert count() == (process or no_setting)


def test_blocks_of_many_threads_leave_nothing():
    """Blocks that begin and end in eight threads at once, in any order, change no other thread, and no setting."""
    rg.threads(5)

    def blocks(number):
        for _ in range(300):
            with rg.threads(number) as outer, rg.threads(number + 1):
                assert count() == number + 1
                with outer:
                    assert count() == number

    with concurrent.futures.ThreadPoolExecutor(8) as others:
        list(others.map(blocks, range(10, 18)))
    assert (count(), thread_count.limits) == (5, 0)


def test_settings_that_are_replaced_are_freed():
    """A program that sets the number in each of its steps keeps the last one only."""
    for number in range(1, 50):
        rg.threads(number)
    assert getattr(thread_count._latest.before, "before", None) is None


@pytest.mark.parametrize("wrong", [0, -1, MOST + 1, 10**30, 1.0, 2.5, True, "2", [1], np.float64(1)])
def test_other_numbers_are_refused(wrong):
    """They change nothing."""
    before = count()
    with refusing("threads: not a number of threads"):
        rg.threads(wrong)
    assert count() == before


# ---- the environment and the machine ---------------------------------------------------------------------------------

SHOW = "import regard as rg; from regard.common.thread_count import count; print(count())"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"REGARD_NUM_THREADS": "7"}, 7),
        ({"REGARD_NUM_THREADS": " 1 ", "OMP_NUM_THREADS": "2"}, 1),
        ({"REGARD_NUM_THREADS": "9", "OMP_NUM_THREADS": "1"}, 9),
        ({"REGARD_NUM_THREADS": "", "OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "1,4,2"}, 1),
        ({"OMP_NUM_THREADS": "none"}, None),
        ({"OMP_NUM_THREADS": "0"}, None),
        ({"OMP_NUM_THREADS": "100000"}, None),
    ],
)
def test_the_environment(environment, expected):
    """regard's own variable counts whatever the machine has; OpenMP's may only lower the number."""
    default = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, quota())
    assert fresh("-c", SHOW, **environment) == [str(expected or default)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5", "5000", "٣x"])
def test_a_wrong_variable_is_refused(wrong):
    """In every call, and not when regard is imported."""
    script = """
        import numpy as np, regard as rg
        for _ in range(2):
            try:
                rg.attention(*np.ones((3, 4, 8), np.float32))
            except rg.Refused as error:
                assert "REGARD_NUM_THREADS: not a number of threads" in str(error), error
                print("refused")
        with rg.threads(1):
            print(rg.attention(*np.ones((3, 4, 8), np.float32)).shape[0])
    """
    assert fresh("-c", script, REGARD_NUM_THREADS=wrong) == ["refused", "refused", "4"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_the_cores_of_the_process():
    """A process that may use one core uses one thread, also if that changes while it runs."""
    script = """
        import os, regard as rg
        from regard.common.thread_count import count
        cores = sorted(os.sched_getaffinity(0))
        for some in (cores[:1], cores, cores[-1:]):
            os.sched_setaffinity(0, some)
            assert count() == len(some), count()
        rg.threads(3)
        print(count())
    """
    assert fresh("-c", script) == ["3"]


@pytest.mark.skipif(not hasattr(os, "process_cpu_count"), reason="Python counts so since 3.13")
def test_the_count_of_python():
    """`python -X cpu_count=1` is a limit."""
    assert fresh("-X", "cpu_count=1", "-c", SHOW) == ["1"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seen", ["own path", "as the root"])
def test_quotas_of_containers(version, seen, tmp_path):
    """Random quotas along the path of groups: the least counts, rounded up; without one there is no limit."""
    chance = random.Random(version)
    own, root = tmp_path / "cgroup", tmp_path / "groups"
    line = "9:memory:/x\n3:cpu,cpuacct:/{}\n" if version == 1 else "0::/{}\n"

    def write(folder, allowed, period=100_000):
        folder.mkdir(parents=True, exist_ok=True)
        if version == 2:
            (folder / "cpu.max").write_text(f"{allowed or 'max'} {period}\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{allowed or -1}\n")
            (folder / "cpu.cfs_period_us").write_text(f"{period}\n")

    for trial in range(60):
        place = root / str(trial)
        base = place if version == 2 else place / "cpu"
        path = ["pods", "one", "box"][: chance.randrange(4)]
        own.write_text(line.format("/".join(path)))
        least = float(MOST)
        for depth in range(len(path) + 1 if seen == "own path" else 1):
            period = chance.choice([100_000, 50_000])
            allowed = chance.choice([None, chance.randrange(1_000, 900_000)])
            write(base.joinpath(*path[:depth]), allowed, period)
            least = min(least, allowed / period if allowed else MOST)
        assert quota(place, own) == max(1, math.ceil(least))
    assert quota(root / "absent", own) == quota(root, tmp_path / "absent") == MOST
    write(base, "rubbish")
    own.write_text(line.format(""))
    assert quota(place, own) == MOST


# ---- torch -----------------------------------------------------------------------------------------------------------


def test_torch_lowers_the_number():
    """`torch.set_num_threads` limits regard, and what the program sets for regard counts more."""
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(MOST)
        most = count()
        for number in (1, 2, 3, MOST):
            torch.set_num_threads(number)
            assert count() == min(number, most)
            with rg.threads(5):
                assert count() == 5
    finally:
        torch.set_num_threads(before)


@pytest.mark.sweep
@pytest.mark.slow
def test_workers_of_a_loader(tmp_path):
    """Workers of a DataLoader, forked or new, have one thread, whatever their parent and the environment set, unless
    they set it themselves.
    """
    import torch  # noqa: F401, without which it is skipped

    script = """
        import threading
        import numpy as np, torch, regard as rg
        from regard.common.thread_count import count

        class Items(torch.utils.data.Dataset):
            def __init__(self, own): self.own = own
            def __len__(self): return 2
            def __getitem__(self, number):
                if self.own:
                    rg.threads(self.own)
                q = np.ones((8, 400, 64), np.float32)
                rg.attention(q, q, q)
                started = sum(each.name.startswith("regard-") for each in threading.enumerate())
                return torch.tensor([count(), started])

        def of_workers(own, start):
            loader = torch.utils.data.DataLoader(Items(own), num_workers=1, batch_size=2, multiprocessing_context=start)
            return [row.tolist() for batch in loader for row in batch]

        if __name__ == "__main__":
            assert count() == 6
            assert of_workers(None, "fork") == [[1, 0]] * 2
            rg.threads(4)
            assert of_workers(None, "fork") == [[1, 0]] * 2
            assert of_workers(3, "fork") == [[3, 2]] * 2
            print(*of_workers(None, "spawn"))
    """
    file = tmp_path / "loader.py"
    file.write_text(textwrap.dedent(script))
    assert fresh(str(file), REGARD_NUM_THREADS="6") == ["[1,", "0]", "[1,", "0]"]
