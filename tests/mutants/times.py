"""A plugin of pytest that writes how long each test took, and how it ended, to $REGARD_REACH/times.jsonl."""

import json
import os

_FILE = os.path.join(os.environ["REGARD_REACH"], "times.jsonl")


def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the process that started the workers hears of each test
    with open(_FILE, "a", encoding="utf-8") as file:
        json.dump([report.nodeid, report.when, report.outcome, round(report.duration, 4)], file)
        file.write("\n")
