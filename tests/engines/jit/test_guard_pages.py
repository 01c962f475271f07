"""Memory safety of every kernel, dtype and vector unit: all arrays, those of the engine too, are next to guard pages.

A stray access ends the process. Uninitialized memory is filled with NaN, so that reading it is visible.
"""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import regard as rg
from regard.common.caching import Memo
from regard.engines import fast_path
from regard.engines.jit import engine, gradients, threads
from regard.engines.jit.code.target import ISAS, limited
from regard.engines.jit.pool import LINE
from tests.engines.jit.usual import parts, same_results, slopes
from tests.support.engines import DTYPES, normal, qkv
from tests.support.kernels import guarded
from tests.support.lanes import by_name
from tests.support.machine import on


class Guarding:
    """NumPy, except that new arrays begin or end at a forbidden page."""

    def __init__(self, at_end: bool):
        self.at_end, self.rests = at_end, []

    def __getattr__(self, name):
        make = getattr(np, name)
        if name not in ("zeros", "full", "ascontiguousarray"):
            return make
        return lambda *given, **named: self._guarded(make(*given, **named))

    def _guarded(self, array):
        return guarded(array, self.at_end) if array.size else array

    def empty(self, shape, dtype=float):
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = 0xFF
        return self._guarded(array)

    def aligned(self, size):
        """`threads.aligned`; the bytes after it, up to the page, are kept in `rests`."""
        room = self.zeros(size + LINE, np.uint8)
        start = -room.ctypes.data % LINE
        self.rests.append(room[start + size :])
        return room[start : start + size]


SIZES = {"H": 4, "G": 2, "Q": 70, "K": 141, "D": 33, "E": 17}
ONE = {"H": 1, "Q": 1, "K": 1, "D": 1, "E": 1, "B": 1}
OF = ["lse", "maximum", "entropy", "distance", "range", "counts", "received"]


def tables(place, keys):
    """A mask and a score whose tables are read up to their ends, and beyond."""
    document, height = rg.table(place(np.arange(keys) // 30)), rg.table(place(np.linspace(-1, 1, 9)))
    same = document[rg.query] >= document[rg.key + 5]
    return {"mask": rg.causal() & same, "score": rg.softcap(5.0, rg.score + height[rg.query - rg.key])}


def forward(rules=tables, sizes=SIZES, **more):
    def call(dtype, place):
        return rg.attention_with_lse(
            *map(place, qkv(dtype=dtype, **sizes)), engine="jit", **rules(place, sizes["K"]), **more
        )

    return call


def backward(sizes):
    def call(dtype, place):
        q, k, v = map(place, qkv(dtype=dtype, **sizes))
        H, rows, keys = sizes["H"], sizes["Q"], sizes["K"]
        near = rg.table(place(normal(rows, keys)))[rg.query - (keys - rows), rg.key]
        rules = tables(place, keys) | {"sinks": place(np.ones(H, np.float32)), "dropout": 0.2, "seed": 3}
        rules["score"] = rules["score"] + near
        dout = place(normal(*q.shape[:3], v.shape[3]).astype(dtype))
        dlse = place(np.ones(q.shape[:3], np.float64 if dtype == np.float64 else np.float32))
        return slopes(rg.attention_backward(dout, q, k, v, dlse=dlse, engine="jit", **rules))

    return call


def statistics(sizes):
    def call(dtype, place):
        q, k, _ = map(place, qkv(dtype=dtype, **sizes))
        cells = min(5, sizes["Q"]), min(7, sizes["K"])
        of = [*OF, rg.mass(rg.table(place(np.arange(sizes["K"]) % 2))[rg.key] > 0), rg.top(3), rg.pooled(*cells)]
        sinks = place(np.ones(sizes["H"], np.float32))
        return parts(rg.attention_stats(q, k, of=of, sinks=sinks, engine="jit", **tables(place, sizes["K"])))

    return call


def decode(storage, D, E):
    def call(dtype, place):
        q, k, v = map(place, qkv(H=8, G=2, Q=300, K=300, D=D, E=E, dtype=dtype))
        cache, found = rg.KVCache(2, D, E, batch=2, dtype=np.dtype(dtype).name, storage=storage), []
        for rows in (slice(0, 260), slice(260, 262), slice(262, 263)):
            cache.append(k[:, :, rows], v[:, :, rows])
            found += cache.attend_with_lse(q[:, :, rows], mask=rg.causal())
        return found

    return call


CALLS = {
    "tiles": forward(),
    "one": forward(lambda *_: {}, ONE),
    "squares": forward(sizes={"H": 2, "Q": 64, "K": 65, "D": 64, "E": 48}),
    "heads in lanes": forward(sizes={"H": 8, "G": 2, "Q": 3, "K": 300, "D": 40, "E": 9}),
    "split keys": forward(sizes={"H": 2, "Q": 2, "K": 2100, "D": 8, "E": 9, "B": 1}),
    "dropout": forward(sizes={"H": 2, "G": 1, "Q": 70, "K": 143, "D": 16, "E": 16}, dropout=0.3, seed=1),
    "backward": backward(SIZES),
    "backward of one": backward(ONE),
    "statistics": statistics(SIZES | {"K": 341}),
    "statistics of one": statistics(ONE),
    "decode": decode(None, D=33, E=17),
    "decode, 8 bits": decode("int8", D=48, E=33),
}


@pytest.mark.spread
@pytest.mark.parametrize(
    ("isa", "dtype"),
    [  # in a sweep, every dtype on every instruction set
        on(isa, dtype, sweep=dtype != np.float32) for isa in ISAS for dtype in DTYPES
    ],
)
@by_name("call", CALLS)
def test_no_kernel_leaves_its_memory(call, dtype, isa, monkeypatch):
    """With every array against a forbidden page, before it and after it, a call gives the bits that it gives
    without.
    """
    with limited(isa):
        plain = call(dtype, np.array)
        for at_end in (True, False):
            guarding = Guarding(at_end)
            with monkeypatch.context() as patched:
                for module, known in ((engine, "_recipes"), (gradients, "_recipes"), (fast_path, "_kinds")):
                    patched.setattr(module, known, Memo(64))  # working memory is kept from call to call
                patched.setattr(threads, "aligned", guarding.aligned)
                for path, module in list(sys.modules.items()):
                    if path.startswith(("regard.engines.jit.", "regard.api.kv_cache.")) and hasattr(module, "np"):
                        patched.setattr(module, "np", guarding)
                found = call(dtype, guarding.ascontiguousarray)
            assert not any(rest.any() for rest in guarding.rests)
            same_results(found, plain)


def test_meta_a_stray_access_is_caught():
    """The pages are forbidden: reading one element too far ends a process."""
    script = """
        import ctypes, numpy as np
        from tests.support.kernels import guarded
        array = guarded(np.zeros(4, np.float32), {at_end})
        for index in {good}, {bad}:
            print(ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_float))[index], flush=True)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    for at_end, good, bad in ((True, 3, 4), (False, 0, -1)):
        code = textwrap.dedent(script.format(at_end=at_end, good=good, bad=bad))
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "0.0\n"), done.stderr
