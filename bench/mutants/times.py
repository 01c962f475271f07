"""A plugin of pytest that writes how many seconds each test took that passed, to $REGARD_REACH/times.json."""

import json
import os
from collections import defaultdict
from pathlib import Path

seconds, failed = defaultdict(float), set()


def pytest_runtest_logreport(report):
    seconds[report.nodeid] += report.duration
    if report.outcome != "passed":
        failed.add(report.nodeid)


def pytest_sessionfinish():
    if "PYTEST_XDIST_WORKER" not in os.environ:  # the process that started the workers hears of each test
        passed = {test: time for test, time in seconds.items() if test not in failed}
        Path(os.environ["REGARD_REACH"], "times.json").write_text(json.dumps(passed))
