"""Build: compiles IR to callable machine code, cached in memory and on disk (disk.py).

The cache key is a digest of the specification, the source of this package, the version of LLVM and the CPU.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from ....common.caching import lock
from . import disk, special
from .target import Target

ROOM = 64 << 20  # bytes that LLVM may need besides those of a kernel
EACH = 32  # bytes per character of a kernel's IR: twice what is measured

_lock = lock()
_kernels: dict[str, Kernel] = {}


# C functions that machine code may call, which systems with POSIX have in the process itself.
C = ("memcmp", "memcpy", "memset", *special.LIBRARY, *(f"{name}f" for name in special.LIBRARY))
# For threads that wait (pool.py), and that let others run (kernels/backward_parts/table_sums.py).
POSIX = (
    "clock_gettime",
    "pthread_cond_broadcast",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "sched_yield",
    "syscall",
)


@functools.cache
def c_functions() -> dict[str, int]:
    """The addresses of these functions by name; a function that this system does not have is left out.

    Raises:
        TypeError, OSError: a system without a library of the process itself.
    """
    found = {name: _address(ctypes.CDLL(None), name) for name in (*POSIX, *C)}
    return {name: address for name, address in found.items() if address}


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 if hasattr(library, name) else 0


@functools.cache
def unavailable() -> str:
    """Why this system cannot run kernels; empty if it can."""
    system = platform.system() or "this system"
    try:
        c_functions()
    except (TypeError, OSError):
        return f"compiled kernels call functions of POSIX, which {system} does not have"
    return ""


class Kernel:
    """Machine code with the signature void(arguments, scratch, maximal number of tasks). `call` releases the GIL;
    `brief` does not, and is for microseconds.
    """

    SIGNATURE = None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64

    def __init__(self, engine, name: str):
        self.engine = engine  # owns the code
        self.address = engine.get_function_address(name)
        self.call, self.brief = (kind(*self.SIGNATURE)(self.address) for kind in (ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE))


def python_functions(names: tuple[str, ...]) -> None:
    """Registers functions of Python's C interface that machine code may call (direct/)."""
    initialize()
    for name in names:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)


@functools.cache
def initialize() -> None:
    """Initializes LLVM's native target once per process, and registers the C functions that kernels may call."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    for name, address in c_functions().items():
        llvm.add_symbol(name, address)


def sources() -> list[Path]:
    """Every file that can affect the code of a specification, or how a call fills the kernel's argument block."""
    jit = Path(__file__).parent.parent
    regard = jit.parent.parent
    whole = (jit, regard / "common", regard / "language")
    return sorted([*(regard / "engines").glob("*.py"), *(file for room in whole for file in room.rglob("*.py"))])


@functools.cache
def _source() -> bytes:
    """A digest of these files and of LLVM's version."""
    digest = hashlib.sha256(f"{llvmlite.__version__} {llvm.llvm_version_info}".encode())
    for path in sources():
        digest.update(path.read_bytes())
    return digest.digest()


def compiled(specification: str, target: Target, write: Callable[[], ir.Module], name: str) -> Kernel:
    """The kernel for a specification: from memory, from disk, or compiled from the IR that `write` returns."""
    digest = hashlib.sha256(_source() + repr((specification, target)).encode()).hexdigest()
    with _lock:
        if digest not in _kernels:
            _check_memory(ROOM)
            initialize()
            code = disk.fetch(digest)
            if code is None:
                code = _emit(write(), target)
                disk.store(digest, code)
            _kernels[digest] = _loaded(code, target, name)
        return _kernels[digest]


def _check_memory(size: int) -> None:
    """Raises MemoryError where so many bytes cannot be allocated: LLVM would end the process."""
    try:
        mmap.mmap(-1, size).close()  # nothing is written to it, so it takes no memory
    except OSError as error:
        raise MemoryError(f"compiling a kernel may take {size >> 20} MiB, which this process cannot have") from error


def _machine(target: Target, jit: bool = True):
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=3,
        reloc="default",
        codemodel="jitdefault" if jit else "default",
        jit=jit,
    )


def _optimized(module: ir.Module, target: Target, machine) -> llvm.ModuleRef:
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    text = str(module)
    _check_memory(ROOM + EACH * len(text))
    parsed = llvm.parse_assembly(text)
    # Loops are unrolled, vectors laid out and invariants hoisted in the IR, so two cleanup passes suffice. LLVM's
    # default pipeline takes twice as long and makes kernels no faster (bench/LOG.md).
    passes = llvm.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return parsed


def _emit(module: ir.Module, target: Target, jit: bool = True) -> Any:
    """The object code of a kernel for this process, or its assembly text.

    LLVM's loop strength reduction, which adds variables, takes half of the time of a compilation and makes kernels no
    faster (bench/LOG.md). It is an option of the process, so it is restored: other libraries use LLVM, too.
    """
    machine = _machine(target, jit)
    optimized = _optimized(module, target, machine)
    llvm.set_option("", "--disable-lsr=1")
    try:
        return machine.emit_object(optimized) if jit else machine.emit_assembly(optimized)
    finally:
        llvm.set_option("", "--disable-lsr=0")


def assembly(module: ir.Module, target: Target) -> str:
    """The kernel as assembly text; also for targets other than this machine."""
    initialize()
    if not target.triple.startswith(llvm.get_default_triple().split("-")[0]):
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    return _emit(module, target, jit=False)


def _loaded(code: bytes, target: Target, name: str) -> Kernel:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(target))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Kernel(engine, name)
