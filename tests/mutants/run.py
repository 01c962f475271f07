"""Applies one mutant after the other in a copy of the checkout, and runs the tests that reach it until one fails."""

import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests import ROOT
from tests.mutants.sample import Mutant

FIRST = 5.0  # seconds of tests in the first run for a mutant; each further run has four times as many
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.M)


@dataclass
class Suite:
    """What is known of the tests: how long each takes, and how many mutants it reaches."""

    seconds: dict[str, float]
    reached: dict[int, set[str]]

    def __post_init__(self):
        self.breadth: dict[str, int] = {}
        for tests in self.reached.values():
            for test in tests:
                self.breadth[test] = self.breadth.get(test, 0) + 1

    def batches(self, number: int, mutant: Mutant, limit: float) -> list[list[str]]:
        """The tests that reach a mutant: near ones first, then those that reach little else, in growing batches."""
        near = mutant.path.removeprefix("src/regard/").split("/")

        def order(test: str):
            folders = test.partition("::")[0].split("/")[1:-1]
            shared = next((i for i, (x, y) in enumerate(zip(folders, near)) if x != y), min(len(folders), len(near)))
            return -shared, self.breadth[test] * (0.05 + self.seconds[test])

        batches, size, whole = [[]], 0.0, 0.0
        room = FIRST
        for test in sorted((test for test in self.reached.get(number, ()) if test in self.seconds), key=order):
            if size > room:
                batches.append([])
                size, room = 0.0, 4 * room
            if whole > limit:
                break
            batches[-1].append(test)
            size, whole = size + self.seconds[test] + 0.02, whole + self.seconds[test] + 0.02
        return [batch for batch in batches if batch]


def run_tests(checkout: Path, tests: list[str], timeout: float) -> tuple[int | None, str]:
    """Runs tests of a checkout until one fails -> (status, output); None is a run that did not end."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "CI": "true", "OMP_WAIT_POLICY": "passive"}
    environment["XDG_CACHE_HOME"] = str(checkout / "cache")
    listed = checkout / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", ""]
    words = [sys.executable, "-m", "pytest", *options, f"@{listed}"]
    process = subprocess.Popen(
        words, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, ""


def judge(checkout: Path, number: int, mutant: Mutant, suite: Suite, limit: float) -> tuple[str, str]:
    """(noticed, by what): `yes` and the test that failed, `no`, or `unreached`."""
    path = checkout / mutant.path
    source = path.read_bytes()
    batches = suite.batches(number, mutant, limit)
    path.write_bytes(mutant.applied(source))
    try:
        for batch in batches:
            timeout = 120 + 8 * sum(suite.seconds[test] for test in batch)
            status, output = run_tests(checkout, batch, timeout)
            if status != 0:
                failed = FAILED.search(output)
                return "yes", failed[1] if failed else f"status {status} of {batch[0]}"
    finally:
        path.write_bytes(source)
    return ("no", f"{sum(map(len, batches))} tests") if batches else ("unreached", "")


def run(folder: Path, mutants: dict[int, Mutant], suite: Suite, limit: float, workers: int, note) -> None:
    """Judges all mutants, several at a time; `note(number, noticed, by)` hears of each."""
    checkouts: SimpleQueue[Path] = SimpleQueue()
    for number in range(workers):
        checkout = folder / f"checkout-{number}"
        left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, checkout, ignore=left_out, dirs_exist_ok=True)
        checkouts.put(checkout)

    def one(number: int) -> None:
        checkout = checkouts.get()
        try:
            note(number, *judge(checkout, number, mutants[number], suite, limit))
        finally:
            checkouts.put(checkout)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, mutants))
