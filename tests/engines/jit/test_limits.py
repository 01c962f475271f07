"""What is too much for the compiler: rules that would take minutes, and a process that has no memory left."""

import sys

import numpy as np
import pytest

import regard as rg
from regard.engines import jit
from regard.engines.jit.code import build
from tests.support.engines import normal
from tests.support.kernels import fresh
from tests.support.lanes import by_name
from tests.support.refusals import refusing

Q = normal(2, 5, 8)


def chain(length: int):
    """A score of so many functions, one inside the other."""
    score = rg.score
    for _ in range(length):
        score = rg.tanh(score)
    return score


def union(length: int):
    """A mask of so many conditions."""
    mask = rg.key == 0
    for number in range(length):
        mask = mask | (rg.key == 3 * number)
    return mask


RULES = {"score": {"score": chain(2000)}, "mask": {"mask": union(6000)}}
RULES["both"] = {"score": chain(jit.LARGEST // 28 + 1), "mask": union(jit.LARGEST // 4 + 1)}


@pytest.mark.parametrize("engine", ["auto", "jit"])
@by_name("rules", RULES)
def test_rules_of_thousands_of_nodes_are_refused_at_once(engine, rules):
    """Nothing is compiled or planned; the limit and the way out are in the message."""
    before = set(build._kernels)
    calls = [
        lambda: rg.attention(Q, Q, Q, engine=engine, **rules),
        lambda: rg.attention_stats(Q, Q, of=["entropy"], engine=engine, **rules),
        lambda: rg.attention_backward(Q, Q, Q, Q, engine=engine, **rules),
        lambda: rg.explain(Q, Q, Q, engine=engine, **rules),
        lambda: rg.attention_part(Q, Q, Q, **rules),
    ]
    for call in calls:
        with refusing("operations per pair"):
            call()
    assert set(build._kernels) == before


@by_name("rules", RULES)
def test_the_law_has_no_limit(rules):
    """The reference computes them."""
    assert np.isfinite(rg.attention(Q, Q, Q, engine="reference", **rules)).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_too_little_memory_to_compile_is_an_error():
    """However little is left, a call raises MemoryError or is right; the process goes on, and computes once it may."""
    script = """
        import os, resource, tempfile
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
        import numpy as np, regard as rg

        q = np.ones((1, 8, 16), np.float32)
        rg.attention(q, q, q)
        score, failed = rg.score, 0
        for megabytes in (0, 1, 3, 8, 12, 16, 20, 28, 40, 60, 90, 400):
            for _ in range(8):
                score = rg.tanh(score) + rg.sin(score)
            taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (taken + (megabytes << 20), resource.RLIM_INFINITY))
            try:
                found = rg.attention(q, q, q, score=score)
                assert np.allclose(found, 1)
            except MemoryError:
                failed += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert np.allclose(rg.attention(q, q, q, score=score), 1)
        print(failed)
    """
    assert int(fresh(script)) > 3
