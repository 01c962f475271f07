"""REGARD_TARGET: kernels are compiled as if the machine had nothing wider, and an unknown name raises `Refused`."""

import functools
import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest

import regard as rg
from regard.engines import peak
from regard.engines.jit.code import target as machine
from regard.engines.jit.code.target import ISAS, TALL, host, limited, offered
from regard.engines.jit.tiling import tiling
from regard.language.problem import Problem
from tests.engines.jit.usual import same_results
from tests.support.engines import dtypes, qkv, same_bits
from tests.support.kernels import fresh
from tests.support.lanes import sweep
from tests.support.machine import names_x86_registers, on

X86 = platform.machine() in ("x86_64", "AMD64")


# ---- what is in use --------------------------------------------------------------------------------------------------


@functools.cache
def whole_machine() -> list[str]:
    """What this machine offers, whatever REGARD_TARGET says to these tests."""
    return fresh("from regard.engines.jit.code.target import offered; print(*offered())", REGARD_TARGET="").split()


def test_it_is_read_once_at_first_use():
    """Importing does not read it; later changes do nothing. A restricted process is like one on a machine without the
    wider instructions.
    """
    code = """
    import os
    import numpy as np, regard as rg, regard.engines.jit as jit
    from regard.engines.jit.code.target import limited
    os.environ["REGARD_TARGET"] = "portable"
    assert jit.host().isa == "portable"
    os.environ["REGARD_TARGET"] = "no such thing"
    q = np.ones((3, 4), np.float32)
    rg.attention(q, q, q)
    print(jit.host().isa)
    try:
        limited("avx2")
    except ValueError as error:
        print(error)
    """
    words = "this machine has no avx2: it offers portable"
    assert fresh(code, REGARD_TARGET="wrong while regard is imported").split("\n") == ["portable", words]


# ---- refusals --------------------------------------------------------------------------------------------------------

CALL = """
import numpy as np, regard as rg
q = np.ones((3, 4), np.float32)
calls = {
    "attention": lambda: rg.attention(q, q, q),
    "again": lambda: rg.attention(q, q, q),
    "backward": lambda: rg.attention_backward(q, q, q, q),
    "stats": lambda: rg.attention_stats(q, q, of=["entropy"]),
    "explain": lambda: rg.explain(q, q, q),
}
for name, call in calls.items():
    try:
        call()
    except rg.Refused as refused:
        (reason,) = refused.reasons
        print(name, refused.where, reason.what, reason.given, reason.expected, reason.fix, sep="|")
print(rg.attention(q, q, q, engine="reference").sum())
"""


def test_an_unknown_name_is_refused():
    """Every time, in three beats, by whatever would compile; the law needs no machine code and is computed."""
    *refusals, law = fresh(CALL, REGARD_TARGET="avx-2").split("\n")
    every = whole_machine()
    assert [line.split("|", 1)[0] for line in refusals] == ["attention", "again", "backward", "stats", "explain"]
    for line in refusals:
        _, where, what, given, expected, fix = line.split("|")
        assert (where, what, given) == ("REGARD_TARGET", "no such target", "REGARD_TARGET=avx-2")
        assert expected == f"one of {', '.join(ISAS)}"
        assert all(repr(name) in fix for name in every) and fix.endswith("or unset it")
    assert float(law) == 12.0


LACKING = """
from regard.engines.jit.code import target
target._features = lambda: {"avx2": True, "fma": True, "f16c": True}
from regard.common.errors import Refused
try:
    target.host()
except Refused as refused:
    print(refused)
"""


def test_a_name_that_the_machine_does_not_have_is_refused():
    """Instructions that are not there would end the process."""
    assert fresh(LACKING, REGARD_TARGET="AVX512").split("\n") == [
        "REGARD_TARGET: this machine has no avx512",
        "  given     REGARD_TARGET=AVX512",
        "  expected  what this machine offers: avx2, portable",
        "  fix       set one of these, or unset it for avx2",
    ]


@pytest.mark.parametrize("command", ["look", *sweep("audit", "train")])
def test_the_command_line_refuses_with_status_2(command):
    """Before any work, and without a traceback."""
    given = [sys.executable, "-c", "from regard.cli import main; main()", command]
    found = subprocess.run(given, env={**os.environ, "REGARD_TARGET": "sse9"}, capture_output=True, text=True)
    assert found.returncode == 2 and "Traceback" not in found.stderr
    assert found.stderr.startswith("regard: no such target: REGARD_TARGET=sse9; expected one of avx512bf16, avx512, ")


# ---- the numbers and the code ----------------------------------------------------------------------------------------

# One call of every kind of kernel; `texts` collects their assembly, for the target that they are compiled for.
EVERY_KERNEL = """
import numpy as np, regard as rg, ml_dtypes
from regard.engines.jit.code import build
texts = []
machine_code = build._emit
def kept(module, target, jit=True):
    if jit:
        texts.append(build.assembly(module, target))
    return machine_code(module, target, jit)
build._emit = kept
rng = np.random.default_rng(0)
bounds = {np.float32: 2e-5, np.float64: 1e-12, np.float16: 4e-3, ml_dtypes.bfloat16: 4e-2}
for dtype, bound in bounds.items():
    q, k, v = (rng.standard_normal((2, 4, rows, 24)).astype(dtype) for rows in (70, 141, 141))
    rules = {"mask": rg.causal() & rg.window(90), "score": rg.softcap(3.0)}
    def both(function, *arrays, **rest):
        ours, law = (function(*arrays, **rules, **rest, engine=name) for name in ("jit", "reference"))
        for found, exact in zip(ours, law) if isinstance(ours, tuple) else [(ours, law)]:
            if isinstance(found, np.ndarray):
                error = np.abs(np.asarray(found, np.float64) - np.asarray(exact, np.float64)).max()
                assert error <= bound * max(1, np.abs(np.asarray(exact, np.float64)).max()), (function, dtype, error)
    both(rg.attention_with_lse, q, k, v)
    both(rg.attention, q[:, :, :1], k, v, dropout=0.1, seed=3)
    both(rg.attention_backward, q, q, k, v)
    rg.attention_stats(q, k, of=["entropy", "received"], **rules)
cache = rg.KVCache(4, 24, dtype="bfloat16", batch=2)
cache.append(k[:, :, :-1], v[:, :, :-1])
cache.append(k[:, :, -1:], v[:, :, -1:])
cache.attend(q[:, :, -1:])
assert len(texts) > 16, len(texts)
"""


@pytest.mark.slow
@pytest.mark.parametrize("isa", [on(isa, sweep=isa != "avx2") for isa in ISAS])
def test_every_kernel_is_right_and_uses_nothing_wider(isa, tmp_path):
    """Numbers agree with the law, and no kernel names a register or an instruction that a narrower machine lacks."""
    text = fresh(EVERY_KERNEL + "\nprint(*texts)", REGARD_TARGET=isa, XDG_CACHE_HOME=str(tmp_path))
    if not X86:
        return
    used = {"avx512bf16": "zmm", "avx512": "zmm", "avx2": "ymm", "portable": "xmm"}[isa]
    assert f"%{used}" in text
    assert wider(isa, text) == []


def wider(isa: str, text: str) -> list[str]:
    """Registers and instructions in assembly that a machine with no more than the ISA lacks, a few of them."""
    patterns = {
        "avx512bf16": r"%tmm\d",
        "avx512": r"%tmm\d|dpbf16|2bf16|\bv(?!cvtps2ph\b)\w+[sp]h\b",
        "avx2": r"%[tz]mm\d|%k[0-7]\b|%[xy]mm(?:1[6-9]|2\d|3[01])|dpbf16|2bf16",
        # SSE3 to SSE4.2, and all that is written with three operands, FMA and F16C among it
        "portable": r"%[tzy]mm\d|%k[0-7]\b|^\s+(?:v[a-z]\w+|p?blendv?\w*|round[ps][sd]|pshufb|pmulld|pmuldq|pm(?:in|ax)"
        r"(?:s[bd]|u[wd])|pmov[sz]x\w+|p(?:ins|ext)r[bdq]|insertps|extractps|popcnt\w*|lzcnt\w*|tzcnt\w*|mulx\w*)\s",
    }
    return sorted(set(re.findall(patterns[isa], text, re.MULTILINE)))


def test_meta_wider_instructions_are_seen():
    """The patterns find what they are meant to find."""
    assert wider("avx2", "\tvaddps\t%zmm1, %zmm2, %zmm3\n") and wider("avx2", "\tvaddps %ymm1, %ymm17, %ymm3\n")
    assert wider("portable", "\tvaddps\t%xmm1, %xmm2, %xmm3\n") and wider("portable", "\troundps\t$1, %xmm1, %xmm2\n")
    assert wider("portable", "\taddps\t%ymm1, %ymm2\n") and wider("avx512", "\tvdpbf16ps\t%zmm1, %zmm2, %zmm3\n")
    assert not wider("portable", "\tmulps\t%xmm1, %xmm15\n\tmovd\t%xmm0, %eax\n")


# ---- other machines --------------------------------------------------------------------------------------------------

AVX2 = ("sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2")
AVX512 = (*AVX2, "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd", "avx512vnni")
PAIRS = (*AVX512, "avx512bf16")
EVERY = ["avx512bf16", "avx512", "avx2", "portable"]
MACHINES = {
    "ivybridge": (("sse4.2", "avx", "f16c"), ["portable"]),
    "haswell": (AVX2, ["avx2", "portable"]),
    "skylake-avx512": (AVX512, ["avx512", "avx2", "portable"]),
    "znver4": ((*PAIRS, "gfni", "vaes"), EVERY),
    "graniterapids": ((*PAIRS, "avx512fp16", "amx-tile", "amx-bf16", "amx-fp16", "avx10.1"), EVERY),
    "neoverse-v1": (("neon", "sve", "fullfp16", "bf16"), ["neon", "portable"]),
    "apple-m1": ((), ["neon", "portable"]),  # LLVM names no features there
}


@pytest.mark.parametrize("cpu", MACHINES)
def test_what_machines_offer(cpu, monkeypatch):
    """By their features; where one is narrowed, the others are turned off by name, for the CPU's name implies them."""
    features, expected = MACHINES[cpu]
    every = {name for known, _ in MACHINES.values() for name in known}
    named = {name: name in features for name in every} if features else {}
    arm = "neon" in expected
    monkeypatch.setattr(machine.llvm, "get_host_cpu_features", lambda: named)
    monkeypatch.setattr(machine, "_features", machine._features.__wrapped__)
    monkeypatch.setattr(machine.llvm, "get_host_cpu_name", lambda: cpu)
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64" if arm else "AMD64")
    assert list(machine._available.__wrapped__()) == expected
    for isa in expected:
        found = machine._target.__wrapped__(isa)
        on = {name[1:] for name in found.features.split(",") if name.startswith("+")}
        if isa == "portable" and not arm:
            assert (found.cpu, found.features) == ("x86-64", "")
            continue
        assert found.cpu == cpu and set(ISAS[isa].needs) <= on
        if isa == expected[0]:
            assert on == {*features, *(["neon"] if arm else [])}
        without = {"avx2": r"avx512|avx10|amx", "avx512": r"avx512(bf16|fp16)$|avx10|amx"}.get(isa, r"(?!)")
        assert not [name for name in on if re.match(without, name)]
        if X86 and not arm:
            assert wider(isa, loops_of(found)) == []


def loops_of(target) -> str:
    """Assembly of the loops that measure the peak of a target."""
    from regard.engines.jit.code import build

    return build.assembly(peak.write(target), target)


# ---- where it is shown -----------------------------------------------------------------------------------------------


def test_explain_says_the_target():
    """Only of the compiled engine; where the variable is set, what else the machine offers too."""
    code = """
    import numpy as np, regard as rg
    q = np.zeros((8, 4), np.float32)
    found = rg.explain(q, q, q)
    law = rg.explain(q, q, q, engine="reference")
    assert law.target is None and "target" not in str(law)
    (line,) = [line for line in str(found).split("\\n") if line.startswith("target  ")]
    assert line == f"target  {found.target}"
    print(line)
    """
    every = whole_machine()
    assert every[-1] == "portable" and every == [name for name in ISAS if name in every]
    assert fresh(code, REGARD_TARGET=" ") == f"target  {every[0]}"  # as if it were not set
    for name in {every[0], every[-1]}:
        assert (
            fresh(code, REGARD_TARGET=name) == f"target  {name} (REGARD_TARGET; this machine offers {', '.join(every)})"
        )
    q = np.zeros((8, 4), np.float32)
    with limited("portable"):
        assert rg.explain(q, q, q).target.split()[0] == "portable"


@pytest.mark.parametrize("isa", offered())
@names_x86_registers
def test_the_peak_is_that_of_the_target(isa):
    """The share of the peak follows the restriction: the loops use the target's vectors, and nothing wider."""
    with limited(isa):
        target = host()
        assert peak.shape(target)[0] == target.lanes(4)
    text = loops_of(target)
    assert wider(isa, text) == []
    assert (peak.loops(target)[2] is not None) == target.tile.pairs == ("dpbf16" in text)


@pytest.mark.skipif("avx2" not in offered(), reason="this machine has no AVX2")
@dtypes
def test_tall_tiles_change_no_bit(dtype):
    """Law 11: rows of tall tiles have the bits that they have in the tiles of few rows; the last tile is not full."""
    q, k, v = qkv(H=3, Q=91, K=230, D=20, E=20, dtype=dtype)
    rules = {"mask": rg.lengths([230, 190]) & (rg.key % 7 != 3), "score": rg.softcap(4.0) + 0.01 * rg.query}
    with limited("avx2"):
        shape = tiling(Problem.of(q, k, v, **rules, query_start=0), tall=True)
        assert shape.rows == TALL * shape.lanes
        whole = rg.attention_with_lse(q, k, v, engine="jit", query_start=0, **rules)
        for first in range(0, 91, 13):
            rows = np.s_[:, :, first : first + 13]
            some = rg.attention_with_lse(q[rows], k, v, engine="jit", query_start=first, **rules)
            same_results(some, [each[rows] for each in whole])


@pytest.mark.skipif(host().tile.query_vectors < 4, reason="tiles have fewer than four vectors")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, *sweep(np.float16)])
def test_low_tiles_change_no_bit(dtype):
    """Where the last tile would be nearly empty all are lower, and rows have the bits that they have in full tiles."""
    q, k, v = qkv(H=3, Q=4 * host().lanes(max(np.dtype(dtype).itemsize, 4)) + 1, K=50, D=20, E=20, dtype=dtype)
    whole, full = (tiling(Problem.of(q[:, :, :rows], k, v), tall=True) for rows in (q.shape[2], q.shape[2] - 1))
    assert whole.rows < full.rows == full.lanes * 4
    same_bits(rg.attention(q, k, v, engine="jit")[:, :, :-1], rg.attention(q[:, :, :-1], k, v, engine="jit"))
