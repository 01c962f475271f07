"""What tests of compiled kernels share: arrays, memory between forbidden pages, kernels as written, fresh processes."""

import ctypes
import mmap
import os
import subprocess
import sys
import textwrap
from functools import partial

import numpy as np
import pytest

from regard.engines.jit import engine
from regard.engines.jit.code.emit import signature
from regard.engines.jit.code.target import Target
from regard.engines.jit.kernels import forward
from regard.engines.jit.tiling import Tiling
from regard.language.problem import Problem
from tests import ROOT
from tests.support.command import SRC
from tests.support.engines import qkv
from tests.support.waiting import HANG

arrays = partial(qkv, Q=70, K=141, D=33, E=17, H=4, G=2)


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


def fresh(script: str, *arguments, cwd=None, **environment) -> str:
    """What a new process prints; it must end by itself, and without an error."""
    if "import torch" in script:
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([SRC, str(ROOT)]), **environment},
        text=True,
        capture_output=True,
        timeout=HANG,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"
    return done.stdout.strip()


# ---- vector units ----------------------------------------------------------------------------------------------------


def written(target: Target, rows: int, rules: dict):
    problem = Problem.of(*arrays(), **rules)
    spec = engine.specify(problem, Tiling(rows, target.lanes(4), rows), unit=(True,) * 4)
    _, constants, tables = signature(*engine.rules(problem))
    return forward.write(spec, target, problem.mask, problem.score, constants, tables)
