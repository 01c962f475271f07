"""The pytest plugin, as a project uses it that has regard installed: items for each case, and the fixture."""

import json
import os
import subprocess
import sys
import tomllib
from xml.etree import ElementTree

import pytest

from tests import ROOT
from tests.support.waiting import HANG

pytestmark = pytest.mark.slow  # each starts pytest, which starts the function in a process of its own

MINE = """
import numpy as np


def weights(s):
    top = s.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = p.sum(-1, keepdims=True)
    return p / np.where(total == 0, 1, total)


def right(q, k, v, *, causal=False):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=q.dtype)
    Q, K = s.shape[-2:]
    if causal:
        s = np.where(np.arange(K) <= np.arange(Q)[:, None] + K - Q, s, -np.inf)
    return weights(s) @ v


def scaled(q, k, v):
    return weights(q @ k.swapaxes(-1, -2)) @ v


def deep(q, k, v, *, causal=False):
    out = right(q, k, v, causal=causal)
    return out + 1 if q.shape[-1] == 64 or len(q[0, 0]) == 33 else out


def ends(q, k, v):
    import os
    os._exit(3)
"""
TESTS = """
import pytest

import mine


def test_right(conform):
    report = conform(mine.right, level=1)
    assert report.level == 1 and report.isolated


def test_wrong(conform):
    conform(mine.scaled, level=1)


def test_declared(conform, tmp_path):
    path = tmp_path / "scaled.json"
    path.write_text('{"schema": 1, "scale": 1.0}')
    assert conform(mine.scaled, adapter=path, level=1).right


def own(q, k, v):
    return mine.right(q, k, v)


def test_own(conform):
    assert conform(own, level=0).right


def test_a_lambda(conform):
    assert not conform(lambda q, k, v: mine.right(q, k, v), level=0).isolated
"""
PLUGINS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with attention functions and tests, and an installed package with the entry points of regard."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine.py").write_text(MINE)
    (folder / "test_mine.py").write_text(TESTS)
    (folder / "hasty.py").write_text("from regard.conformance import counterexample\n\ncounterexample.SECONDS = 0\n")
    (folder / "empty").mkdir()
    installed = folder / "installed" / "plugins_of_regard-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins-of-regard\nVersion: 0\n")
    points = "".join(f"{name} = {module}\n" for name, module in PLUGINS.items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{points}")
    return folder


def run(project, *arguments, tests="empty"):
    """pytest in the folder, without the options of this repository."""
    path = os.pathsep.join(map(str, (ROOT / "src", project / "installed")))
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", project, tests)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*map(str, command), *map(str, arguments)],
        cwd=project,
        env=env | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def test_a_right_function_passes_every_case(project):
    found = run(project, "--conform", "mine.py:right", "--conform-level", "1", "-v", "--strict-markers")

    assert found.returncode == 0, found.stdout
    assert "mine.py:right::law-01[plain] PASSED" in found.stdout
    assert "mine.py:right::law-03[causal-fewer-rows] PASSED" in found.stdout
    assert "SKIPPED (absent: the functi" in found.stdout and "law-04" not in found.stdout


def test_a_convention_that_is_not_declared_fails_once_with_its_cause(project):
    found = run(project, "--conform", "mine.py:scaled", "--conform-level", "1")

    assert found.returncode == 1
    assert "1 failed" in found.stdout and "law 1, scale-missing: scale: the textbook: 1/√D" in found.stdout
    assert "from mine import scaled" in found.stdout and "Traceback" not in found.stdout


def test_a_broken_law_fails_with_its_counterexample(project):
    """In the terminal, and in the report for other programs, which has the error of each case."""
    path = project / "report.xml"
    found = run(project, "--conform", "mine.py:deep", "--conform-level", "1", "-v", "--junitxml", path)

    assert found.returncode == 1
    assert "law-01[deep] FAILED" in found.stdout and "law-01[one-head] PASSED" in found.stdout
    assert "and must be" in found.stdout and "from mine import deep" in found.stdout
    assert "  cause     " in found.stdout and "pytest_plugin.py" not in found.stdout

    cases = {each.get("name"): each for each in ElementTree.parse(path).iter("testcase")}
    plain = {each.get("name"): each.get("value") for each in cases["law-01[plain]"].iter("property")}
    assert plain["law"] == "1" and 0 <= float(plain["error_over_bound"]) <= 1
    assert "from mine import deep" in cases["law-01[deep]"].find("failure").text
    assert cases["law-02[mask-true]"].find("skipped") is not None


def test_a_case_or_a_law_may_be_expected_to_fail(project):
    """A case must then fail, and a law in one of its cases."""
    reason = {"reason": "for large depths", "link": "https://example.org/1"}
    expected = {"law-01[deep]": reason, "law-03": reason}
    (project / "known.json").write_text(json.dumps({"schema": 1, "expected": expected}))
    options = ("--conform-adapter", "known.json", "--conform-level", "1", "-p", "hasty", "-vrx")

    found = run(project, "--conform", "mine.py:deep", *options)
    assert found.returncode == 0, found.stdout
    assert "2 xfailed" in found.stdout and "law-03[expected-to-fail] PASSED" in found.stdout
    assert "law-01[deep] XFAIL" in found.stdout and "for large depths https://example.org/1" in found.stdout

    found = run(project, "--conform", "mine.py:right", *options)
    assert found.returncode == 1 and "2 failed" in found.stdout
    assert "[XPASS(strict)] for large depths" in found.stdout
    assert "law-03 is expected to fail, and passes: remove it" in found.stdout


def test_cases_are_selected_by_level_and_by_name(project):
    names = "causal-of-33-rows or runs or window-3"
    found = run(project, "--conform", "mine.py:right", "-m", "level1", "-k", names, "-v")

    assert "1 passed" in found.stdout and "law-03[causal-of-33-rows] PASSED" in found.stdout


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--conform", "nowhere:attention"), "nowhere"),
        (("--conform", "mine.py:right", "--conform-adapter", "missing.json"), "missing.json"),
        (("--conform", "mine.py:right", "--conform-level", "6"), "invalid choice"),
        (("--conform-level", "2"), "--conform-level is given without --conform"),
    ],
)
def test_what_cannot_run_is_an_error_of_usage(project, options, words):
    """Exit status 4, as for other wrong arguments of pytest."""
    found = run(project, *options)

    assert found.returncode == 4, found.stdout + found.stderr
    assert words in found.stderr and "Traceback" not in found.stderr + found.stdout


def test_a_function_that_ends_its_process_fails_its_cases(project):
    """Until three calls are lost. No smaller call is sought: each would start a process."""
    found = run(project, "--conform", "mine.py:ends", "--conform-level", "0", "-p", "hasty", "-rs")

    assert found.returncode == 1, found.stdout
    assert "the process" in found.stdout and "INTERNALERROR" not in found.stdout
    assert "3 calls hung or ended the process before" in found.stdout


def test_the_fixture(project):
    """It fails with the report; it judges functions of the test file, wherever that is imported from, and lambdas."""
    found = run(project, "--import-mode=importlib", tests="test_mine.py")

    assert "1 failed, 4 passed" in found.stdout, found.stdout
    assert "mine:scaled: level 0 of 1, 1 finding" in found.stdout
    assert "law 1, scale-missing" in found.stdout and "from mine import scaled" in found.stdout
    assert "pytest_plugin.py" not in found.stdout


def test_it_loads_nothing_until_it_is_used(project):
    """Neither regard nor NumPy, when pytest starts and runs other tests."""
    (project / "test_other.py").write_text(
        "import sys\n\ndef test_other():\n    assert not {'regard', 'numpy', 'torch'} & set(sys.modules)\n"
        "    assert 'regard_pytest' in sys.modules\n"
    )
    found = run(project, "-p", "no:hypothesispytest", tests="test_other.py")

    assert "1 passed" in found.stdout, found.stdout
