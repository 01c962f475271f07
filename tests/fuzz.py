"""The long random campaign: every promise on random problems, for as long as one likes. `make fuzz SEED=7 MINUTES=60`.

A round is one seed: each property draws some problems from it, and the seed alone decides which. What fails is made
small and printed with the call that repeats it. Kernels go to a folder of their own, which is thrown away.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

import regard as rg
from regard.engines import dispatch as engines
from regard.engines.jit import threads
from regard.engines.jit.code.target import limited
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.api import test_kv_cache as test_cache
from tests.engines.jit import test_backward, test_sums
from tests.engines.jit import test_engine as test_engines
from tests.engines.jit import test_statistics as test_stats_engine
from tests.engines.jit.usual import gradients_of, incoming
from tests.support.engines import DTYPES, at_every_pair
from tests.support.machine import OFFERED
from tests.support.strategies import dropouts, hostile, problems

anything = problems(dtypes=DTYPES, rows=200)
isas = st.sampled_from(list(OFFERED))


PROPERTIES = {}


def drawn(*strategies):
    """A property of whatever the strategies draw."""

    def listed(function):
        PROPERTIES[function.__name__] = strategies, function
        return function

    return listed


def laws(kwargs: dict) -> tuple[np.ndarray, np.ndarray]:
    return rg.attention_with_lse(**kwargs, engine="jit")


same = np.testing.assert_equal  # of arrays in tuples, NaN included; its third argument says what they are


# ---- properties ------------------------------------------------------------------------------------------------------


@drawn(anything, isas, st.just({}) | dropouts)
def forward(case, isa, falling):
    """As exact as the input allows, on any vector unit; with dropout (law 9) too."""
    with limited(isa):
        test_engines.judge(case.kwargs | falling)


@drawn(anything, isas, st.sampled_from((1e-30, 1e-8, 1e3)), st.sampled_from((1e-44, 1e-30, 1e-5, 1e4)))
def magnitudes(case, isa, scores, values):
    """Tiny scores, scores of thousands, values that are denormals or large."""
    arrays = {name: np.asarray(case.kwargs[name], np.float64) * size for name, size in (("q", scores), ("v", values))}
    with limited(isa):
        test_engines.judge(
            case.kwargs | {name: array.astype(case.kwargs[name].dtype) for name, array in arrays.items()}
        )


@drawn(
    problems(dtypes=DTYPES, rows=1500, depth=8), st.sampled_from((1, 2, 5)), st.integers(1, 300), st.integers(0, 999)
)
def bits(case, count, step, number):
    """Law 11: the same bits from any number of threads, from contiguous copies, for one entry alone, and for rows in
    chunks.
    """
    kwargs, problem = case.kwargs, Problem.of(**case.kwargs)
    whole = laws(kwargs)
    with threads.limit(count):
        same(laws(kwargs), whole, f"{count} threads")
    same(
        laws({name: np.ascontiguousarray(value) if name in "qkv" else value for name, value in kwargs.items()}),
        whole,
        "copies",
    )
    B, H, Q, _ = problem.q.shape
    if 0 in (B, H, Q):
        return
    first = number % Q
    rows = slice(first, min(first + step, Q))
    part = {"q": kwargs["q"][..., rows, :], "query_start": problem.query_start + first}
    same(laws(kwargs | part), (whole[0][..., rows, :], whole[1][..., rows]), f"rows {rows}")
    causal = rg.causal() & (rg.everything() if kwargs["mask"] is None else kwargs["mask"])
    whole = laws(kwargs | {"mask": causal})
    seen = slice(0, int(np.clip(part["query_start"].max() + step, 1, max(problem.dims["K"], 1))))
    part |= {"mask": causal, "k": kwargs["k"][..., seen, :], "v": kwargs["v"][..., seen, :]}
    same(laws(kwargs | part), (whole[0][..., rows, :], whole[1][..., rows]), f"rows {rows} and the keys so far")


@drawn(problems(dtypes=DTYPES, rows=6000, depth=8), isas, st.sampled_from((1, 2, 5)))
def sums(case, isa, workers):
    """Law 11: a call has the bits of its pieces, each computed alone and merged as a tree."""
    q, k, v, *names = case.kwargs.items()
    rule = {name: value for name, value in names if value is not None}
    with limited(isa), threads.limit(workers):
        test_sums.check_tree(q[1], k[1], v[1], rule)


def reach(before: Problem, after: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(rows (B, H, Q) that see what differs, keys (B, G, K) that such a row may attend or that differ themselves)."""
    B, H, G, Q, K = (before.dims[letter] for letter in "BHGQK")
    shape, start = (B, H, Q, K), before.query_start
    allowed = at_every_pair(rg.everything() if before.mask is None else before.mask, shape, start)
    changed = {part: (getattr(before, part) != getattr(after, part)).any(-1) for part in "qkv"}
    keys = changed["k"] | changed["v"]
    rows = (allowed & np.repeat(keys, H // G, axis=1)[:, :, None]).any(-1) | changed["q"]
    return rows, (allowed & rows[..., None]).any(2).reshape(B, G, H // G, K).any(2) | keys


@drawn(problems(dtypes=DTYPES, rows=120, depth=40), isas, st.data(), st.just({}) | dropouts)
def poison(case, isa, data, falling):
    """Law 6: whatever a key, a value or a query holds, rows that may not attend it keep their bits, and so do gradients
    that have nothing to do with it; other rows show what the law shows.
    """
    name = data.draw(st.sampled_from("qkv"))
    bad = data.draw(hostile(np.ascontiguousarray(case.kwargs[name])))
    before, after = (Problem.of(**case.kwargs | falling | changed) for changed in ({}, {name: bad}))
    if 0 in before.dims.values():
        return
    rows, keys = reach(before, after)
    dout, _ = incoming(before)
    results = []
    with limited(isa):
        for problem in (before, after):
            back = engines.pull_back(problem, engines.keep(problem, "jit"), dout, None, [])
            results.append((*engines.solve(problem, "jit"), back.q, back.k, back.v))
    untouched = ~rows, ~rows, ~rows, ~keys, ~keys
    old, new = ([part[where] for part, where in zip(found, untouched)] for found in results)
    same(new, old, f"out, lse, dq, dk and dv of what a change of {name} does not reach")
    if name == "v" and not falling:
        exact = reference.forward(after)[0].astype(after.dtype).astype(np.float64)
        np.testing.assert_array_equal(np.isfinite(results[1][0].astype(np.float64)), np.isfinite(exact))


@drawn(anything, isas, st.sampled_from((np.inf, -np.inf, np.nan, 1e30)), st.integers(0, 99))
def sinks(case, isa, value, number):
    """Law 8: a sink of −∞ is none, and one of +∞ or NaN shows in its head and in no other."""
    problem = Problem.of(**case.kwargs)
    B, H, Q = problem.q.shape[:3]
    if 0 in (B, H, Q):
        return
    given_sinks = np.zeros((H, 2), np.float64)
    given_sinks[:, 1], given_sinks[number % H, 1] = -np.inf, value
    with limited(isa):
        alone = laws(case.kwargs | {"sinks": given_sinks[:, :1]})
        found = laws(case.kwargs | {"sinks": given_sinks})
    unchanged = (np.arange(H) != number % H) | (value == -np.inf)
    for x, y in zip(found, alone, strict=True):
        x, y = (array.reshape(B, H, Q, -1) for array in (x, y))
        np.testing.assert_array_equal(x[:, unchanged], y[:, unchanged])
    exact = reference.forward(Problem.of(**case.kwargs | {"sinks": given_sinks}))
    for x, y in zip(found, exact, strict=True):
        np.testing.assert_array_equal(np.isnan(x.reshape(y.shape)), np.isnan(y))


@drawn(problems(dtypes=DTYPES, rows=150, depth=40), isas, st.booleans(), st.just({}) | dropouts)
def backward(case, isa, with_lse, falling):
    """The gradients of the law, and the same bits from any number of threads."""
    problem = Problem.of(**case.kwargs, **falling)
    dout, dlse = incoming(problem)
    dlse = dlse if with_lse else None
    with limited(isa):
        found = gradients_of(problem, dout, dlse)
        with threads.limit(3):
            test_backward.same(gradients_of(problem, dout, dlse), found)
    test_backward.judge(found, problem, dout, dlse)


@drawn(problems(dtypes=DTYPES, rows=150, depth=40), isas)
def statistics(case, isa):
    """The statistics of the law."""
    dims = Problem.of(**case.kwargs).dims
    maps = [rg.pooled(min(dims["Q"], 3), min(dims["K"], 4))] if dims["Q"] and dims["K"] else []
    with limited(isa):
        test_stats_engine.judge(case.kwargs, test_stats_engine.EVERYTHING + maps)


# ---- the campaign ----------------------------------------------------------------------------------------------------


def examine(name: str, number: int) -> Exception | None:
    """One property on the problems of a seed; what went wrong, made small."""
    setup = settings(
        max_examples=20,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    try:
        if name == "cache":  # random lives of a cache, beside plain arrays that keep everything
            run_state_machine_as_test(seed(number)(test_cache.Model), settings=settings(setup, stateful_step_count=20))
        else:
            strategies, function = PROPERTIES[name]
            seed(number)(setup(given(*strategies)(function)))()
    except Exception as error:  # whatever it is, it is what the campaign looks for
        return error
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each round takes the next")
    parser.add_argument("--minutes", type=float, default=5.0, help="after which no new round begins; 0 is one round")
    parser.add_argument("--only", choices=[*PROPERTIES, "cache"], action="append", help="these properties alone")
    options = parser.parse_args()
    end, number, failures = time.monotonic() + 60 * options.minutes, options.seed, 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        while True:
            for name in options.only or [*PROPERTIES, "cache"]:
                begun = time.monotonic()
                error = examine(name, number)
                print(
                    f"seed {number} {name}: {'failed' if error else 'ok'}, {time.monotonic() - begun:.1f} s", flush=True
                )
                if error:
                    failures += 1
                    traceback.print_exception(error, limit=-4, file=sys.stdout)
                    print(f"again: make fuzz SEED={number} MINUTES=0 ONLY={name}\n", flush=True)
            number += 1
            if time.monotonic() >= end:
                break
    print(f"rounds {options.seed} … {number - 1}: {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
