"""Benchmarks: every engine computes what it claims, wrong results are caught, and the figures count what they say."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import regard as rg
from bench import interleave, report, run
from bench.accuracy import Truth
from bench.cases import CASES, shrunk
from bench.engines import ENGINES, Form
from regard.engines import peak
from regard.engines.jit.code.target import host, limited, offered
from tests.support.refusals import refusing

SMALL = {case.kind if case.dtype == "float32" else f"{case.kind}-{case.dtype}": shrunk(case, 96) for case in CASES}


def inputs_of(kind):
    return SMALL[kind].inputs()


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("dense", 96**2 * 8 * 4 * SMALL["dense"].D),  # four operations per pair and depth
        ("grouped", 96 * 97 // 2 * 16 * 4 * 64),
        ("window", (3 * 96 - 3) * 8 * 4 * 64),
        ("train-dense", 96**2 * 8 * 7 * 2 * 128),  # two products forward and five back
        ("decode-8", 8 * 8 * 96 * 128 * 2 * 4),  # keys and values are read once, whatever the number of query heads
        ("decode-8-bfloat16", 8 * 8 * 96 * 128 * 2 * 2),
    ],
)
def test_useful_work_is_counted(kind, work):
    """A causal case counts n (n + 1) / 2 pairs per head, a dense one n²; decoding counts bytes."""
    assert inputs_of(kind).work == work


def test_the_limit_of_a_case_is_that_of_its_numbers():
    """Reads for decoding, products of 16-bit pairs where the machine has them."""
    assert inputs_of("window").case.reach == 3
    for kind, dot, limit in (("decode-8", 4, 3), ("dense-bfloat16", 4, 4), ("dense-bfloat16", math.nan, 2)):
        assert report.limit(SMALL[kind], peak.Peak(1, 2, dot, 3, 16, 2)) == limit


def of_the_law(inputs):
    return rg.attention(inputs.q, inputs.k, inputs.v, engine="reference", mask=inputs.mask, score=inputs.score)


@pytest.mark.parametrize("kind", ["statistics", "train-causal", "causal"])
def test_truth_sees_a_wrong_number(kind):
    """In any of the results; what is right is no error, and what is missing or not finite is one."""
    inputs = inputs_of(kind)
    form = ENGINES["regard"].forms(inputs)[0]
    truth, right = Truth(inputs), form.read(form.run())
    assert truth.error(right) < truth.tolerance
    for number in range(len(right)):
        for change, least in ((0.5, 10 * truth.tolerance), (np.nan, math.inf)):
            wrong = [np.array(each) for each in right]
            wrong[number].flat[-1] += change
            assert truth.error(wrong) >= least
    assert truth.error(right[1:]) == math.inf


def invented(name, scale=1.0, problem=None):
    """An engine that answers with the right result times `scale`, or raises."""

    def forms(inputs):
        if problem:
            raise problem
        out = of_the_law(inputs) * scale
        return [
            Form("slow and wrong", lambda: out + 1, lambda found: [found]),
            Form("plain", lambda: out, lambda found: [found]),
        ]

    return SimpleNamespace(name=name, title=name, forms=forms, tasks=("forward",))


def test_wrong_results_are_neither_timed_nor_ranked():
    """Of several forms a right one takes part; an engine without one is reported as wrong, a failure as failed."""
    engines = [
        invented("regard"),
        invented("sdpa"),
        invented("jax", scale=1.001),
        invented("eager", problem=RuntimeError("no compiler\nmore")),
    ]
    ours, good, off, broken = run.run_case(SMALL["short"], engines, interleave.Pace(2, 0.001, 0), lambda text: None)

    assert (ours.status, good.status, good.form, good.ratio) == ("timed", "timed", "plain", 1.0)
    assert ours.ratio == pytest.approx(good.seconds / ours.seconds)
    assert (off.status, off.bursts) == ("wrong", []) and math.isnan(off.seconds)
    assert (broken.status, broken.note) == ("failed", "RuntimeError: no compiler")


def test_engines_are_interleaved():
    """Every engine has a burst in every round, and every round begins with another one."""
    heard = []
    runs = {name: lambda name=name: heard.append(name) for name in "abc"}
    bursts = interleave.interleaved(runs, interleave.Pace(rounds=3, burst=0.0, pause=0.0))
    order = [name for place, name in enumerate(heard) if place == 0 or heard[place - 1] != name]

    assert {name: len(found) for name, found in bursts.items()} == {"a": 3, "b": 3, "c": 3}
    assert "".join(order) == "abcbcacab"
    assert interleave.seconds([interleave.Burst(1, median, 1.0) for median in (3.0, 1.0, 2.0)]) == 2.0


@pytest.mark.parametrize("isa", offered())
def test_peak_loops_compute(isa):
    """The multiply-adds and the reads that are counted are carried out: their results say so."""
    with limited(isa):
        target = host()
    fma, read, dot = peak.loops(target)
    lanes, chains = peak.shape(target)
    ones = np.ones(64 * 8 * lanes, np.float32)

    assert fma(100) == chains  # every chain has converged to 1
    assert read(ones.ctypes.data, len(ones)) == 64 * 8
    if dot is not None:  # every chain has grown by 100 halves
        assert dot(100) == sum(chain + 50 for chain in range(chains))


def test_peak_is_a_limit(monkeypatch):
    """One core of any machine of the last decade does 1 to 1000 GFLOP/s in its widest vectors."""
    monkeypatch.setattr(peak, "STEPS", 200_000)
    monkeypatch.setattr(peak, "BYTES", 8 << 20)
    found = peak.measure()

    assert 1 < found.one < 1000
    assert found.all > 1
    assert found.read > 0.1
    assert math.isnan(found.dot) == (peak.loops(host())[2] is None)


def test_a_requested_engine_must_be_installed(monkeypatch):
    """By default missing engines are reported; a requested one raises `Refused` with the install command."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    console = Console(record=True, width=200)

    with refusing("pip install jax"):
        run.installed(["jax"], required=True, console=console)
    found = run.installed(list(ENGINES), required=False, console=console)
    assert [engine.name for engine in found] == ["regard", "forward"]
    assert "skipped JAX" in console.export_text()


def test_numbers_that_do_not_exist_become_null():
    """NaN and infinity have no place in JSON."""
    assert report.as_json({"a": [math.nan, 1.5], "b": (math.inf, "x")}) == {"a": [None, 1.5], "b": [None, "x"]}
