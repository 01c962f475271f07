"""Runs kernels and the thread pool as Windows has them, under Wine, and compares results with the reference.

    apt-get install wine64 wine gcc-mingw-w64-x86-64
    python -m tests.engines.jit.windows.under_wine --calls 40

Each kernel is compiled for Windows here; caller.c loads it there with the llvmlite.dll of the wheel for Windows, and
calls it with the arrays of a random call. Python itself does not run there. CI has no Wine; there
tests/engines/jit/test_threads.py runs the pool of Windows on Linux.
"""

import argparse
import dataclasses
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import llvmlite
import llvmlite.binding as llvm
import numpy as np

import regard as rg
from regard.engines import direct
from regard.engines.jit import engine, gradients, statistics
from regard.engines.jit.code import build, system, target
from regard.engines.jit.run import pool

TRIPLE = "x86_64-pc-windows-msvc"
TARGETS = {
    "avx2": target.Target("avx2", TRIPLE, "haswell", "+avx2,+fma,+f16c"),
    "portable": target.Target("portable", TRIPLE, "x86-64", ""),
}
HELPERS = 2
WHEEL = "--platform win_amd64 --python-version 311 --only-binary :all: --no-deps --quiet --disable-pip-version-check"


class Machine:
    """Windows under Wine: compiles what `build.compiled` is given, and runs what `launch` would run."""

    def __init__(self, folder: Path, isa: str):
        self.folder, self.target, self.runs = folder, TARGETS[isa], 0
        command = [sys.executable, "-m", "pip", "download", f"llvmlite=={llvmlite.__version__}", *WHEEL.split()]
        subprocess.run([*command, "--dest", str(folder)], check=True)
        with zipfile.ZipFile(next(folder.glob("llvmlite*.whl"))) as wheel:
            for name in wheel.namelist():
                if name.endswith(".dll"):
                    (folder / Path(name).name).write_bytes(wheel.read(name))
        (folder / "pool.o").write_bytes(build._machine_code(pool.write("address"), self.target))
        self.program = folder / "caller.exe"
        defined = {
            "CPU": f'"{self.target.cpu}"',
            "FEATURES": f'"{self.target.features}"',
            "C_FUNCTIONS": ",".join(f'"{name}"' for name in system.C),
        }
        subprocess.run(
            ["x86_64-w64-mingw32-gcc", "-O1", "-w", *(f"-D{name}={value}" for name, value in defined.items()),
             str(Path(__file__).with_name("caller.c")), "-o", str(self.program)],
            check=True,
        )  # fmt: skip

    def compiled(self, specification, wanted, write, name):
        """Instead of `build.compiled`: an object file with the kernel."""
        key = hashlib.sha256(repr((specification, wanted)).encode()).hexdigest()[:20]
        path = self.folder / f"{key}.o"
        if not path.exists():
            path.write_bytes(build._machine_code(write(), self.target))
        return SimpleNamespace(address=0, path=path, name=name)

    def launch(self, kernel, block, scratch, workers, kept, *, slow=False):
        """Instead of `launch`: the same call there; its arrays are changed here."""
        arrays = list({(each.ctypes.data, each.nbytes): each for each in [block, *arrays_in(kept)]}.values())
        spans = [np.lib.array_utils.byte_bounds(each) for each in arrays]
        places = []
        for slot, value in enumerate(block.tolist()):
            # No pieces are left at the end of the block, where their counters would be.
            inside = [at for at, (begin, end) in enumerate(spans) if begin <= value < end + (at == 0)]
            if inside:
                places.append((slot, inside[0], value - spans[inside[0]][0]))
            elif value >> 40 not in (0, -1) and _mapped(value):
                raise AssertionError(f"slot {slot} of {kernel.name}: the array at {value:x} is not known")
        memory = [_bytes_of(span) for span in spans]
        call = [scratch, HELPERS, len(block), *block.tolist(), len(arrays)]
        with open(self.folder / "call", "wb") as file:
            file.write(np.array(call, np.int64).tobytes())
            for each in memory:
                file.write(np.int64(each.size).tobytes() + each.tobytes())
            file.write(np.array([len(places), *(number for place in places for number in place)], np.int64).tobytes())
        files = kernel.path, kernel.name, self.folder / "pool.o", self.folder / "call", self.folder / "result"
        subprocess.run(
            ["wine", *map(str, (self.program, *files))],
            check=True,
            timeout=300,
            env={**os.environ, "WINEDEBUG": "-all"},
        )
        found, begin = np.fromfile(self.folder / "result", np.uint8), 0
        for at, each in enumerate(memory):
            if at and any(array == at for _, array, _ in places):  # not the block, whose addresses are of there
                _change(spans[at], found[begin : begin + each.size])
            begin += each.size
        self.runs += 1


def arrays_in(value, seen=None):
    """Every array that is reachable from the objects that a call keeps."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (type, str, bytes, int, float, type(None))):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield value
        if isinstance(value.base, np.ndarray):
            yield from arrays_in(value.base, seen)
        return
    parts = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    elif dataclasses.is_dataclass(value) or type(value).__module__.startswith("regard"):
        parts = [getattr(value, name) for name in slots_of(value)]
    for part in parts:
        yield from arrays_in(part, seen)


def slots_of(value):
    """The names of an object's attributes."""
    named = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    return [name for name in {*named, *getattr(value, "__dict__", {})} if hasattr(value, name)]


def _bytes_of(span):
    begin, end = span
    return np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (end - begin)).from_address(begin)).copy()


def _change(span, found):
    begin, end = span
    now = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (end - begin)).from_address(begin))
    changed = now != found
    now[changed] = found[changed]  # what is read only there, too, is not written to


def _mapped(address):
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in spans)


def problem(rng):
    """The arrays and rules of a random call, and its dtype."""
    dtype = rng.choice(["float32", "float64", "float16"])
    G, copies, D, E = rng.integers(1, 4), rng.integers(1, 4), rng.integers(1, 80), rng.integers(1, 80)
    Q, K, H = rng.integers(1, 150), rng.integers(1, 300), G * copies
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((2, H, Q, D), (2, G, K, D), (2, G, K, E)))
    masks = {
        "none": None, "causal": rg.causal(), "window": rg.window(int(rng.integers(1, 90))) & rg.causal(),
        "lengths": rg.lengths(rng.integers(0, K + 1, 2)), "own": (rg.key % 3 != 1) | (rg.query % 2 == 0),
    }  # fmt: skip
    scores = {
        "none": None, "softcap": rg.softcap(3.0), "alibi": rg.alibi(int(H)),
        "sine": rg.score + rg.sin(rg.query - rg.key), "bias": rg.bias(rng.standard_normal((Q, K)), query_start=0),
    }  # fmt: skip
    rules = {"mask": masks[rng.choice(list(masks))], "score": scores[rng.choice(list(scores))]}
    if rng.random() < 0.3:
        rules["sinks"] = rng.standard_normal(H)
    rules = {name: rule for name, rule in rules.items() if rule is not None}
    return (q, k, v), rules | {"query_start": 0 if "score" in rules else int(rng.integers(-5, 20))}


def main(arguments: list[str]) -> int:
    """Runs random calls; returns 1 if a result differs from the reference."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.jit.windows.under_wine", description=__doc__)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--isa", choices=TARGETS, default="avx2")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), given.isa)
        target._target = lambda name: machine.target
        build.compiled = machine.compiled
        direct._table = lambda of_tensors: None  # as on Windows
        for module in (engine, gradients, statistics):
            module.launch = machine.launch
        rng = np.random.default_rng(given.seed)
        for number in range(given.calls):
            arrays, rules = problem(rng)
            q, k, v = arrays
            rough = {"float64": 1e-9, "float32": 2e-4, "float16": 3e-2}[str(q.dtype)]
            dout = rng.standard_normal((*q.shape[:3], v.shape[3])).astype(q.dtype)
            found, expected = {}, {}
            for into, name in ((found, "jit"), (expected, "reference")):
                into["out"], into["lse"] = rg.attention_with_lse(q, k, v, engine=name, **rules)
                if "sinks" not in rules:
                    into |= dict(zip(("dq", "dk", "dv"), rg.attention_backward(dout, q, k, v, engine=name, **rules)))
                measured = {each: rule for each, rule in rules.items() if each != "sinks"}
                into["entropy"] = rg.attention_stats(q, k, of=["entropy"], engine=name, **measured).entropy
            errors = {
                name: float(np.max(np.abs(np.nan_to_num(found[name] - expected[name])), initial=0)) for name in found
            }
            same = all(
                np.allclose(found[name], expected[name], rtol=rough, atol=rough * (1 + np.abs(expected[name]).max()))
                for name in found
            )
            wrong += not same
            print(number, "right" if same else "WRONG", q.dtype, q.shape, k.shape, sorted(rules), errors, flush=True)
    print(f"{given.calls} calls, {machine.runs} kernels, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
