"""What this machine offers to the tests: the instruction sets that kernels can be compiled for; and how much of it, and
of chance, tests of small models get.
"""

import pytest

from regard.engines.jit.code.target import ISAS, host, offered

OFFERED = offered()
# What CI compiles kernels for in one run: this machine, and what most machines have. Sweeps do the others, and
# `.ci/run` runs the laws once more under REGARD_TARGET=avx2 and portable.
IN_CI = {host().isa, "avx2"}

names_x86_registers = pytest.mark.skipif(
    host().triple.split("-")[0] != "x86_64", reason="names registers of x86-64, and this machine is another"
)


def on(isa: str, *values, sweep: bool = False):
    """The parameters of a test that compiles for an instruction set; skipped on a machine without it."""
    lacks = f"this machine has no {isa}: it offers {', '.join(OFFERED)}"
    sweep = sweep or isa not in IN_CI
    marks = [pytest.mark.skipif(isa not in OFFERED, reason=lacks), *([pytest.mark.sweep] if sweep else [])]
    return pytest.param(isa, *values, marks=marks)


each_isa = pytest.mark.parametrize("isa", [on(isa) for isa in ISAS])
narrower_isas = pytest.mark.parametrize("isa", [on(isa) for isa in ISAS if isa != host().isa])


@pytest.fixture(autouse=True)
def seeded():
    """The random numbers of torch are those of seed 0."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads wait for each other longer than work on tiny models takes."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
