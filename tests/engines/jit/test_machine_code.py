"""The compiled engine as machine code: memory it may touch, and vector units."""

import ctypes
import mmap
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import regard as rg
from regard.engines.dispatch import choose
from regard.engines.jit import engine
from regard.engines.jit.code import build
from regard.engines.jit.code.emit import signature
from regard.engines.jit.code.target import Target, host, limited
from regard.engines.jit.kernels import forward
from regard.engines.jit.tiling import Tiling
from regard.engines.reference import attention as reference
from regard.language.operators import OPERATORS
from regard.language.problem import Problem
from tests.support.engines import DTYPES
from tests.support.machine import each_isa, names_x86_registers

RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window": {"mask": rg.causal() & rg.window(20), "score": rg.softcap(4.0)},
    "documents": {"mask": rg.documents(lengths=[30, 1, 50, 60, 400])},
}


def arrays(Q=70, K=141, D=33, E=17, H=4, G=2, B=2, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (B, H, Q, D), (B, G, K, D), (B, G, K, E)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def test_one_row_per_operator():
    """Every operator of the language is emitted, and nothing else."""
    from regard.engines.jit.code.emit import EMIT

    assert set(EMIT) == set(OPERATORS)


# ---- memory ----------------------------------------------------------------------------------------------------------


class Guarded:
    """Memory between two pages that may not be touched: an array at its very end, or at its very start."""

    def __init__(self, size: int):
        page = mmap.PAGESIZE
        self.room = max(page, -(-size // page) * page)
        self.map = mmap.mmap(-1, self.room + 2 * page)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        for start in (self.address, self.address + page + self.room):
            assert libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) == 0

    def place(self, array: np.ndarray, at_end: bool) -> np.ndarray:
        offset = mmap.PAGESIZE + (self.room - array.nbytes if at_end else 0)
        placed = np.frombuffer(self.map, array.dtype, array.size, offset).reshape(array.shape)
        placed[...] = array
        return placed


def guarded(array: np.ndarray, at_end: bool) -> np.ndarray:
    return Guarded(array.nbytes).place(array, at_end)


@pytest.mark.parametrize(
    "index", [rg.key * 1_000_003, -rg.key - 10, rg.query - 2**31 + rg.key, rg.key * 2**40, 7 // (rg.key - 3)]
)
def test_an_index_outside_of_a_table_is_clamped(index):
    """However wrong an index is, 32 bits or 64, the read stays inside."""
    q, k, v = arrays()
    problem = Problem.of(
        q, k, v, score=rg.score + rg.table(guarded(np.linspace(-1, 1, 7, dtype=np.float32), True))[index]
    )
    np.testing.assert_allclose(engine.solve(problem)[0], reference.forward(problem)[0], rtol=1e-4, atol=1e-5)


def test_a_table_may_hold_any_number():
    """Ids beyond 32 bits compare as the numbers they are."""
    ids = rg.table(np.array([1, 2**40 + 1, 2**40 + 1, 1 - 2**62, 1, 2**32 + 1, 1, 1 - 2**62]))
    q, k, v = arrays(Q=8, K=8)
    problem = Problem.of(q, k, v, mask=ids[rg.query] == ids[rg.key])
    np.testing.assert_allclose(engine.solve(problem)[0], reference.forward(problem)[0], rtol=1e-4, atol=1e-5)


def fresh(script: str, **environment) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout


def test_memory_grows_with_rows_only():
    """100,000 causal rows take at most 16 MB beyond the arrays."""
    script = """
        import resource, numpy as np, regard as rg
        q, k, v = (np.zeros((100_000, 16), np.float32) for _ in range(3))
        for array in (q, k, v): array[...] = 1
        rg.attention(q[:256], k[:256], v[:256], mask=rg.causal(), engine="jit")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        out = rg.attention(q, k, v, mask=rg.causal(), engine="jit")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before - out.nbytes // 1024)
    """
    assert int(fresh(script)) <= 16 * 1024


# ---- vector units ----------------------------------------------------------------------------------------------------


def written(target: Target, rows: int, rules: dict):
    problem = Problem.of(*arrays(), **rules)
    spec = engine.specify(problem, Tiling(rows, target.lanes(4), rows, False), False, (True,) * 4)
    _, constants, tables = signature(*engine.rules(problem))
    return forward.write(spec, target, problem.mask, problem.score, constants, tables)


REGISTERS = {
    "avx512bf16": ("zmm", ()),
    "avx512": ("zmm", ("dpbf16",)),
    "avx2": ("ymm", ("zmm",)),
    "portable": ("xmm", ("zmm", "ymm")),
}


@each_isa
@names_x86_registers
def test_a_kernel_uses_its_vector_unit_and_no_wider_one(isa):
    """The machine code names the registers of its ISA, and none that a narrower machine lacks."""
    with limited(isa):
        target = host()
        text = build.assembly(written(target, 2 * target.lanes(4), RULES["window"]), target)
    used, forbidden = REGISTERS[isa]

    assert used in text
    assert not [name for name in forbidden if name in text]


def test_the_portable_kernel_compiles_for_another_machine():
    """For 64-bit ARM the same IR becomes fused multiply-adds on 128-bit vectors, without calls of a software fma."""
    target = Target("portable", "aarch64-unknown-linux-gnu", "generic", "+neon")
    text = build.assembly(written(target, 2 * target.lanes(4), RULES["window"]), target)

    assert len(re.findall(r"\bfmla\s+v\d+\.4s", text)) > 20
    assert not re.findall(r"\bbl\s+fmaf?\b", text)


def test_machines_are_not_overstated():
    """A vector unit that this machine lacks is refused by name."""
    with pytest.raises(ValueError, match=r"this machine has no avx9000: it offers .*portable"):
        limited("avx9000")


# ---- one kernel for many numbers -------------------------------------------------------------------------------------


def test_new_numbers_compile_nothing():
    """Another window, other documents, another scale: the kernel is the same."""
    q, k, v = arrays()
    rg.attention(q, k, v, mask=rg.window(20) & rg.documents(lengths=[100, 41]), engine="jit")
    before = set(build._kernels)
    rg.attention(q, k, v, mask=rg.window(31) & rg.documents(lengths=[5, 6, 130]), scale=0.3, engine="jit")

    assert set(build._kernels) == before


# ---- engines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_dtype_is_compiled(dtype):
    """engine="auto" chooses the compiled engine for each of them, and says so."""
    q = np.zeros((4, 8), dtype)
    name, why = choose(Problem.of(q, q, q))

    assert name == "jit"
    assert why == ["the compiled engine takes every part of this problem"]
