"""The compiled engine as machine code: memory it may touch, and vector units."""

import re

import numpy as np
import pytest

import regard as rg
from regard.engines.jit import engine
from regard.engines.jit.code import build
from regard.engines.jit.code.target import ACCUMULATORS, TALL, Target, host, limited, offered
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.support.kernels import arrays, fresh, guarded, written

WINDOW = {"mask": rg.causal() & rg.window(20), "score": rg.softcap(4.0)}


def agrees(q, k, v, **rules) -> None:
    problem = Problem.of(q, k, v, **rules)
    np.testing.assert_allclose(engine.solve(problem)[0], reference.forward(problem)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "index", [rg.key * 1_000_003, -rg.key - 10, rg.query - 2**31 + rg.key, rg.key * 2**40, 7 // (rg.key - 3)]
)
def test_an_index_outside_of_a_table_is_clamped(index):
    """However wrong an index is, 32 bits or 64, the read stays inside."""
    table = rg.table(guarded(np.linspace(-1, 1, 7, dtype=np.float32), True))
    agrees(*arrays(), score=rg.score + table[index])


def test_a_table_may_hold_any_number():
    """Ids beyond 32 bits compare as the numbers they are."""
    ids = rg.table(np.array([1, 2**40 + 1, 2**40 + 1, 1 - 2**62, 1, 2**32 + 1, 1, 1 - 2**62]))
    agrees(*arrays(Q=8, K=8), mask=ids[rg.query] == ids[rg.key])


def test_memory_grows_with_rows_only():
    """40,000 causal rows take at most 16 MB beyond the arrays."""
    script = """
        import resource, numpy as np, regard as rg
        q, k, v = (np.zeros((40_000, 16), np.float32) for _ in range(3))
        for array in (q, k, v): array[...] = 1
        rg.attention(q[:256], k[:256], v[:256], mask=rg.causal(), engine="jit")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        out = rg.attention(q, k, v, mask=rg.causal(), engine="jit")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before - out.nbytes // 1024)
    """
    assert int(fresh(script)) <= 16 * 1024


def blocks(text: str, stores: str) -> list[str]:
    """The blocks of machine code in which nothing is stored."""
    return [block for block in re.split(r"^\.LBB\S+:", text, flags=re.M) if not re.search(stores, block)]


@pytest.mark.parametrize("isa", ["neon", "portable"])
def test_kernels_compile_for_another_machine(isa):
    """For 64-bit ARM the same IR becomes fused multiply-adds on 128-bit vectors, without calls of a software fma."""
    target = Target(isa, "aarch64-unknown-linux-gnu", "generic", "+neon")
    vectors = target.tile.query_vectors
    text = build.assembly(written(target, vectors * target.lanes(4), WINDOW), target)

    products = max(len(re.findall(r"\bfmla\s+v\d+\.4s", block)) for block in blocks(text, r"\bst[pr]\b"))
    assert products >= target.tile.key_tile * vectors * 4
    assert not re.findall(r"\bbl\s+fmaf?\b", text)


@pytest.mark.parametrize("vectors", [2, TALL])
@pytest.mark.skipif("avx2" not in offered(), reason="this machine has no AVX2")
def test_the_sums_of_a_tile_stay_in_the_registers_of_avx2(vectors):
    """Of usual tiles and of tall ones, which need all 16: nothing is stored between two products."""
    with limited("avx2"):
        target = host()
        text = build.assembly(written(target, vectors * target.lanes(4), {}), target)
    apart = blocks(text, r"\bv?mov\w+\s+%ymm\d+, -?\d*\(")
    products = max(len(re.findall(r"\bvfmadd\w+ps\b", block)) for block in apart)
    assert products >= 4 * (ACCUMULATORS if vectors == TALL else target.tile.key_tile * vectors)


# ---- one kernel for many numbers -------------------------------------------------------------------------------------


def test_new_numbers_compile_nothing():
    """Another window, other documents, another scale, rate and seed: the kernel is the same."""
    q, k, v = arrays()

    def kernels(width, lengths, **numbers):
        mask = rg.window(width) & rg.documents(lengths=lengths)
        assert rg.attention(q, k, v, mask=mask, engine="jit", **numbers).any()
        return set(build._kernels)

    before = kernels(20, [100, 41], dropout=0.1, seed=1)
    assert kernels(31, [5, 6, 130], scale=0.3, dropout=0.9, seed=2**64 - 1) == before
