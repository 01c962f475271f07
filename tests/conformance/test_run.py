"""Whole runs: right and wrong functions, their findings, counterexamples, reports and exit statuses."""

import json
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import regard as rg
import regard.conformance as rc
from regard.conformance.conventions.parameters import completed, parameters_of
from regard.conformance.conventions.translate import Absent
from regard.conformance.counterexample import script
from regard.laws.call import ROLES, Call
from regard.laws.probes import probes
from tests.conformance.implementations import right
from tests.conformance.test_translate import differentiable
from tests.support.command import regard
from tests.support.engines import normal
from tests.support.lanes import sweep
from tests.support.waiting import HANG

from .whole import BREAKS, SOURCE, broken


@pytest.fixture
def written(tmp_path):
    """Writes source into a file of its own, and names its function."""

    def write(source, name="mine"):
        (tmp_path / f"{name}.py").write_text(source)
        return f"{tmp_path / name}.py:attention"

    return write


def here(source):
    """The function of the source, which is judged in this process, as no other one finds it by a name."""
    names = {}
    exec(source, names)
    return names["attention"]


def assert_fails(script, folder):
    """A counterexample fails where a user would run it."""
    ran = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=HANG)
    assert ran.returncode == 1 and "Error" in ran.stderr and "NameError" not in ran.stderr, ran.stderr


def test_a_right_function_keeps_every_law(written):
    """With every argument that the suite knows; NumPy adds in another order alone, so to rounding."""
    report = rc.conform(written(SOURCE), level=4)

    assert report.right and report.level == 4 and report.mark in ("4r", "4b"), str(report.findings)
    assert report.isolated and report.counts["pass"] > 120 and "fail" not in report.counts
    for result in report.results:
        named = {role for role in ROLES if role in result.case.name.split("-")}
        assert named <= {*result.case.call.uses()}, f"{result.case.id} passes what its name says"


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", BREAKS)
def test_every_law_is_judged(name, written, tmp_path):
    """A function that breaks one law is caught, the law or its mistake is named, and the counterexample shows it."""
    law, _, _, mistake = BREAKS[name]
    adapter = rc.Adapter(dtypes=("float32", "float64")) if law == 10 else None
    report = rc.conform(written(broken(name)), adapter=adapter, level=4 if law == 6 else 2)

    assert not report.right and report.level < report.requested
    first = report.findings[0]
    assert first.cause and first.fix and first.cases
    if mistake is not None:
        assert mistake in (first.mistake, *first.alike), str(first)
    assert law in {each.law for each in report.findings} or any(f"law-{law:02d}" in case for case in first.cases)
    for finding in report.findings:
        if finding.counterexample:
            assert len(finding.counterexample.splitlines()) <= 20 and "regard" not in finding.counterexample
            assert_fails(finding.counterexample, tmp_path)


def test_a_row_that_changes_with_its_neighbours_is_noticed():
    """Here by large numbers in the queries of other rows alone."""
    line = "    s = scale"
    report = rc.conform(here(SOURCE.replace(line, f"    v = v if np.abs(q).max() < 8 else -v\n{line}")), level=4)

    assert "law-11[neighbours]" in {case for each in report.findings for case in each.cases}


def test_a_run_is_repeatable():
    """Equal seeds give equal findings and counterexamples, other seeds other cases."""
    function = here(broken("2-ignored"))
    first, second, other = (rc.conform(function, level=1, seed=seed) for seed in (3, 3, 4))

    assert [each.to_json() for each in first.findings] == [each.to_json() for each in second.findings]
    assert [each.ratio for each in first.results] != [each.ratio for each in other.results]


def test_gradients(written, tmp_path):
    """A torch function whose gradient has no scale: named, with a script that computes the gradient."""
    source = """
import torch


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        p = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, dout):
        q, k, v, p = ctx.saved_tensors
        dp = dout @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return ds @ k, ds.mT @ q, p.mT @ dout


def attention(q, k, v):
    return Attention.apply(q, k, v)
"""
    import torch  # noqa: F401, which gradients need

    report = rc.conform(written(source))

    assert report.level == 2 and report.findings[0].mistake == "gradient-scale-missing", str(report.findings)
    assert_fails(report.findings[0].counterexample, tmp_path)


def test_expected_failures_are_strict():
    """A case that is expected to fail is no finding; one that passes instead is."""
    function = here(broken("13-mask-and-causal"))
    failing = [each.case.id for each in rc.conform(function, level=1).results if each.status == "fail"]
    expected = {case: {"reason": "known", "link": "https://example.org/1"} for case in [*failing, "law-01[plain]"]}

    report = rc.conform(function, adapter=rc.Adapter(expected=expected), level=1)
    assert failing and "fail" not in report.counts and not report.right
    assert [(each.kind, each.cases) for each in report.findings] == [("unexpected-pass", ("law-01[plain]",))]


CHANGES = {
    "inputs": "    mask = mask if mask is None else np.logical_not(mask, out=mask) | True\n",
    "twice": "    v = v * (1 + 1e-3 * np.random.default_rng().random())\n",
    "memory-strided": "    k = np.lib.stride_tricks.as_strided(k, k.shape, np.empty(k.shape, k.dtype).strides)\n",
}


@pytest.mark.parametrize("what", CHANGES)
def test_behavior_beside_the_numbers(what, written, tmp_path):
    """Changed inputs, results that change from call to call, and strides that are assumed have scripts as well."""
    source = SOURCE.replace("    given = q.dtype\n", f"    given = q.dtype\n{CHANGES[what]}")
    report = rc.conform(written(source), level=2 if what == "memory-strided" else 0)
    finding = next(each for each in report.findings if any(what in case for case in each.cases))

    assert report.level == (1 if what == "memory-strided" else -1)
    assert len(finding.counterexample) < 1000, "shrunk like any other call"
    assert_fails(finding.counterexample, tmp_path)


MISREAD = """
import numpy as np
def attention(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    top = s.max(-1, keepdims=True, initial=-1e30)
    p = np.exp(s - top)
    lse = np.log(p.sum(-1, keepdims=True)) + top
    return {"output": p / p.sum(-1, keepdims=True) @ v, "logsumexp": lse}
"""


LSE = {"returns": {"out": "output", "lse": "logsumexp"}, "lse_layout": "BHQ", "declared": ("lse_layout",)}


@pytest.mark.parametrize(
    ("name", "declared"),
    [
        ("returns", {"returns": {"out": "out"}}),
        ("returns", {"returns": ("out", "lse")}),
        ("lse_layout", LSE),
        ("layout", {"layout": "SBHD"}),
    ],
)
def test_a_result_that_is_not_as_declared(written, tmp_path, name, declared):
    """The declared convention is the first finding, with a short script that fails."""
    first = rc.conform(written(MISREAD), adapter=rc.Adapter(**declared), level=1).findings[0]

    assert first.kind == "convention" and first.measured.startswith(name), str(first)
    assert len(first.counterexample) < 1000
    assert_fails(first.counterexample, tmp_path)


def test_regard_itself():
    """The public function, in every bit."""
    report = rg.conform("regard:attention_with_lse", level=4)

    assert report.right and report.mark == "4b", str(report.findings)


def test_reports():
    """JSON, JUnit, Markdown and the badge say the same."""
    report = rc.conform(here(broken("1-scale")), level=1)
    data = json.loads(json.dumps(report.to_json()))
    suite = ElementTree.fromstring(rc.junit(report))

    assert data["level"] == report.level == 0 and data["findings"][0]["mistake"] == "scale-missing"
    assert {"law", "mistake", "cause", "counterexample"} <= data["findings"][0].keys() and data["conventions"]
    assert len(data["cases"]) == len(report.results)
    assert int(suite.get("tests")) == len(suite.findall("testcase")) == len(report.results) + 1
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) >= 1
    assert "scale-missing" in rc.markdown(report) and "```python" in rc.markdown(report)
    assert "level 0" in ElementTree.fromstring(rc.badge(report)).get("aria-label")


@pytest.mark.parametrize(("change", "status"), [("", 0), ("1-scale", 1), (None, 2)])
def test_the_command(change, status, written):
    """Exit status 0 right, 1 mistakes, 2 not run."""
    name = "nowhere.py:attention" if change is None else written(broken(change) if change else SOURCE)
    ended, out, err = regard("conform", name, "--level", "1", "--json")

    assert ended == status and "Traceback" not in err, err
    assert status == 2 or json.loads(out)["right"] is (status == 0)


def test_arguments_of_the_command_that_exclude_each_other():
    """All problems at once, in three parts."""
    status, out, err = regard("conform", "--json", "--junit", "--infer")

    assert (status, out) == (2, "")
    assert err.splitlines() == [
        "regard: two formats: --json --junit; expected one of --json, --junit, --markdown, --badge; fix: run it once "
        "for each.",
        "regard: --infer prints an adapter, not a report: --infer --json --junit; expected --infer without a format; "
        "fix: omit one of them.",
        "regard: no function is named: nothing; expected MODULE:FUNCTION or FILE.py:FUNCTION; fix: regard conform "
        "mine.py:attention.",
    ]


SEEMS = """
import numpy as np
def attention(q, k, v, *, mask=None, valid_lens=None):
    given, dtype = q.dtype, np.float16 if q.dtype == np.float16 else np.float32
    q, k, v = (x.astype(dtype) for x in (q, k, v))
    s = q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    if valid_lens is not None:
        s[valid_lens.reshape(99)] = 0
    top = s.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = p.sum(-1, keepdims=True)
    return (p / np.where(total == 0, 1, total) @ v).astype(given)
"""


def test_what_only_seems_to_be_there_is_not_inferred(tmp_path):
    """A dtype that runs with the errors of another one, and an argument that no call may pass: the notes say so, and
    the confirmed adapter is accepted.
    """
    function = here(SEEMS)
    found = rc.infer(function)
    notes = " ".join(found.notes)

    assert found.adapter.dtypes[0] == "float32" and "float64" not in found.adapter.dtypes
    assert "without float64" in notes or "float64" not in notes
    assert "valid_lens" not in found.adapter.parameters.values() and "valid_lens: always None" in notes
    path = tmp_path / "adapter.json"
    path.write_text(json.dumps(json.loads(found.text) | {"confirmed": True}))
    assert rc.conform(function, adapter=rc.read_adapter(path), level=2).right


HEADS = """
import numpy as np
def attention(query, key, value):
    heads, (batch, rows, width) = [], query.shape
    for q, k, v in zip(*(np.array_split(x, 4, -1) for x in (query, key, value))):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        p = np.exp(s - s.max(-1, keepdims=True, initial=-1e30))
        heads.append(p / np.maximum(p.sum(-1, keepdims=True), 1e-300) @ v)
    return np.concatenate(heads, -1).astype(query.dtype)
"""


def test_heads_that_are_in_the_code_are_found():
    """The width is divided among four heads, and no parameter says so."""
    function = here(HEADS)
    found = rc.infer(function).adapter

    assert (found.layout, found.heads, found.groups) == ("BSD", 4, "none")
    assert rc.conform(function, adapter=replace(found, confirmed=True), level=2).right


# ---- random conventions ----------------------------------------------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", [*range(16), *sweep(*range(1000, 1500))])
def test_right_implementations_are_accepted(seed):
    """All layouts, polarities, alignments, window counts, groups, bases of lse and empty rows, drawn at random: with
    their own adapter, and with the measured one.
    """
    function, declared = right(np.random.default_rng(seed))
    names = {"parameters": declared.parameters, "heads": declared.heads, "layout": declared.layout}
    inferred = rc.infer(function, adapter=rc.Adapter(**names)).adapter
    for adapter in (declared, replace(inferred, confirmed=True)):
        assert [str(each) for each in rc.conform(function, adapter=adapter, level=2).findings] == []


# ---- counterexamples of right functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(16))
def test_right_functions_pass(seed):
    """In random conventions, each result that they return; but for NaN in hidden values, which most do not keep out."""
    function, adapter = right(np.random.default_rng(seed))
    results = {adapter.returns} if isinstance(adapter.returns, str) else {*adapter.returns} - {None}
    ran = 0
    for probe in probes(np.float64):
        for what in results if probe.call.dout is None and probe.id != "nan-values" else ():
            try:
                text = script(probe.call, adapter, parameters_of(function), "function", what, [])
            except Absent:
                continue
            exec(text, {"function": function})
            ran += 1
    assert ran


@pytest.mark.parametrize(
    ("layout", "axes", "library"),
    [("BSHD", "BQH1", "torch"), ("HSD", "BHQ", "torch"), ("THD", "HT", "torch"), ("BHSD", "BHQ", "jax")],
)
def test_gradients_of_right_functions_pass(layout, axes, library):
    """Of every input, from those of the output and of lse in base 2; a packed layout has no keys beyond the lengths."""
    pytest.importorskip(library)
    real = np.float32 if library == "jax" else float  # jax has no float64 by default
    packed = layout == "THD"
    names = {name: name for name in ("cu_seqlens_q", "cu_seqlens_k")} if packed else {"bias": "mask"}
    adapter = rc.Adapter(
        arrays=library,
        layout=layout,
        lse="base-2",
        lse_layout=axes,
        returns=("out", "lse"),
        gradients=library,
        parameters=names | {"sinks": "sinks"},
    )
    function = differentiable(adapter)
    q, k, v, dout = (normal(1, 2, rows, 3, seed=seed, dtype=real) for seed, rows in enumerate((4, 5, 5, 4)))
    more = {"lengths": np.array([3])} if packed else {"bias": normal(1, 1, 4, 5, dtype=real)}
    call = Call(q=q, k=k, v=v, sinks=normal(2, dtype=real), dout=dout, dlse=dout[..., 0], **more)
    named = completed(adapter, parameters_of(function))
    for role in ("q", "k", "v", "sinks", *(() if packed else ("bias",))):
        text = script(call, named, parameters_of(function), "function", f"gradient of {role}", [])
        exec(text, {"function": function})
