"""Applies one mutant after the other in a copy of the checkout, and runs the tests that reach it until one fails."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from bench.mutants.sample import Mutant
from tests import ROOT

SOON = 30  # so many tests run first: they are enough for most mutants
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.M)


@dataclass
class Suite:
    """What is known of the tests: the seconds that each takes, and by file of the source and first line of a function,
    the tests that call it.
    """

    seconds: dict[str, float]
    reached: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))

    def tests(self, mutant: Mutant, limit: float) -> list[str]:
        """The tests that reach a mutant, within a limit of seconds: near ones first, then those that take little."""
        functions = self.reached[mutant.path]
        # A change outside functions can be seen in each of the file.
        tests = functions[mutant.function] if mutant.function else set().union(*functions.values())
        source = Path(mutant.path.replace("src/regard", "tests")).parents

        def order(test: str):
            return -len({*source} & {*Path(test.partition("::")[0]).parents}), self.seconds[test]

        ordered = sorted(tests & self.seconds.keys(), key=order)
        whole = accumulate(self.seconds[test] + 0.02 for test in ordered)
        return [test for test, until in zip(ordered, whole) if until < limit]


def run_tests(checkout: Path, tests: list[str], timeout: float) -> str | None:
    """Runs tests of a checkout until one fails -> what failed."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "CI": "true", "OMP_WAIT_POLICY": "passive"}
    environment["XDG_CACHE_HOME"] = str(checkout / "cache")
    listed = checkout / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "", f"@{listed}"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    process = subprocess.Popen(words, cwd=checkout, env=environment, start_new_session=True, **piped)
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"no end of {tests[0]}"
    if process.returncode:
        failed = FAILED.search(output)
        return failed[1] if failed else f"status {process.returncode} of {tests[0]}"
    return None


def judge(checkout: Path, mutant: Mutant, suite: Suite, limit: float) -> tuple[str, str]:
    """(noticed, by what): `yes` and the test that failed, `no`, or `unreached`."""
    path = checkout / mutant.path
    source = path.read_bytes()
    tests = suite.tests(mutant, limit)
    path.write_bytes(mutant.applied(source))
    try:
        for some in filter(None, (tests[:SOON], tests[SOON:])):
            if failed := run_tests(checkout, some, timeout=120 + 8 * sum(suite.seconds[test] for test in some)):
                return "yes", failed
    finally:
        path.write_bytes(source)
    return ("no", f"{len(tests)} tests") if tests else ("unreached", "")


def run(folder: Path, mutants: dict[int, Mutant], suite: Suite, limit: float, workers: int, note) -> None:
    """Judges all mutants, several at a time; `note(number, noticed, by)` hears of each."""
    waiting = iter(mutants.items())
    left_out = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")

    def work(worker: int) -> None:
        checkout = shutil.copytree(ROOT, folder / f"checkout-{worker}", ignore=left_out, dirs_exist_ok=True)
        for number, mutant in waiting:
            note(number, *judge(checkout, mutant, suite, limit))

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
