"""Machine: what a processor can do at most, from a file or measured here; the roofline of a model's cost."""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..common.errors import Reason, Refused, did_you_mean, first_line, page, refuse
from ..common.files.strict_json import Each, wrong
from ..engines.hardware import cache_bytes, memory_bytes, processor

PAGE = page("Machine files")
SHIPPED = Path(__file__).parent / "machines"
MEASURED = ("float64", "float32", "bfloat16", "float16")  # dtypes of torch's matrix products on a CPU
DTYPES = (*MEASURED, "int8")
SHOWN = 60  # characters of a value in a message

# What a number may be: lowest, highest, how it is written, and a number as a data sheet has it with the same in the
# file. The limits reject numbers in TFLOP/s, GB/s or GB.
LIMITS = {
    "peak": (1e8, 1e18, "operations per second", "989 TFLOP/s is 989e12"),
    "bandwidth": (1e8, 1e16, "bytes per second", "3350 GB/s is 3350e9"),
    "memory": (1e8, 1e16, "bytes", "80 GB is 80e9"),
    "cache": (1e3, 1e12, "bytes", "50 MB is 50e6"),
}

FORM = {"name": str, "bandwidth": float, "memory": float, "cache": float, "peak": Each(float)}

SIZES = (256, 512, 1024, 2048)  # rows of the square matrices that are multiplied
SECONDS = 0.25  # for each size, and for each way to move bytes
COPIED = 128 << 20  # bytes of an array that is copied; several times the largest cache if that is more


@dataclass(frozen=True)
class Machine:
    """Peak rates and sizes of one processor.

    A piece of work with F operations in a dtype and M bytes of memory traffic takes at least
    max(F / peak, M / bandwidth) seconds, and F / peak where the bytes fit the cache.

    Args:
        name: what the machine is called.
        peak: operations per second for each dtype, without sparsity; a multiply-add counts as two.
        bandwidth: bytes per second between memory and processor, reading and writing together.
        memory: bytes of memory.
        cache: bytes of the largest cache. Traffic of data that fits is not limited by `bandwidth`.
        where: "measured here", or the file.

    Source:
        Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009.

    Examples:
        >>> card = Machine.named("h100-sxm")
        >>> f"{card.name}: {card.rate('bfloat16') / card.bandwidth:.0f} operations per byte"
        'NVIDIA H100 SXM: 295 operations per byte'
        >>> card.bound(1e12, 1e9, "bfloat16") == 1e12 / card.peak["bfloat16"]
        True
    """

    name: str
    peak: dict[str, float]
    bandwidth: float
    memory: int
    cache: int
    where: str

    @classmethod
    def named(cls, text: str) -> Machine:
        """The machine of a command line: "here", the name of a shipped file, or the path of a file.

        >>> Machine.named("l4").where
        'l4'
        """
        if text == "here":
            return cls.here()
        shipped = cls.shipped()
        if text in shipped:
            return cls._of(_load(SHIPPED / f"{text}.toml"), text)
        if Path(text).suffix == ".toml" or Path(text).exists() or Path(text).name != text:
            return cls.read(text)
        raise refuse(
            "machine",
            "an unknown machine",
            text[:SHOWN],
            "here, the name of a known machine, or a machine file",
            did_you_mean(text, ["here", *shipped], PAGE),
        )

    @staticmethod
    def shipped() -> list[str]:
        """The names of the machines that regard knows."""
        return sorted(path.stem for path in SHIPPED.glob("*.toml"))

    @classmethod
    def read(cls, path: str | Path) -> Machine:
        """The machine of a TOML file. Refused, with every problem: unknown or missing fields, impossible numbers."""
        return cls._of(_load(Path(path)), str(path))

    @classmethod
    def _of(cls, fields: dict[str, Any], where: str) -> Machine:
        given = {name: value for name, value in fields.items() if name != "source"}
        if reasons := list(wrong(given, FORM, "the file", f"correct it ({PAGE})")) or list(_impossible(fields)):
            raise Refused(f"machine file {where}", reasons)
        peak = {dtype: float(rate) for dtype, rate in fields["peak"].items()}
        sizes = {name: int(fields[name]) for name in ("memory", "cache")}
        return cls(fields["name"], peak, float(fields["bandwidth"]), **sizes, where=where)

    @classmethod
    def here(cls, dtypes: Iterable[str] = ("float32", "bfloat16")) -> Machine:
        """This machine's processor, measured with all threads of torch in a few seconds.

        peak: the best of many products of square matrices by torch and of multiply-adds in registers.
        bandwidth: the best of reading, copying, and adding large arrays. memory and cache: from the system.
        """
        from ..engines import peak

        dtypes = tuple(dtypes)
        unknown = [dtype for dtype in dtypes if dtype not in MEASURED]
        if unknown:
            raise refuse(
                "machine",
                "a dtype that is not measured",
                ", ".join(unknown),
                "dtypes of torch's matrix products on a CPU",
                did_you_mean(unknown[0], MEASURED, PAGE),
            )
        memory, cache = memory_bytes(), cache_bytes()
        if memory is None or cache is None:
            raise refuse(
                "machine",
                "the system does not say all sizes",
                f"no size of {'memory' if memory is None else 'cache'}",
                "the sizes of memory and of the last cache",
                f"write a machine file ({PAGE}) and pass its path",
            )
        registers = peak.measure(memory=False)
        # Vectors convert float16, and multiply it as float32.
        rates = {dtype: max(_fastest_product(dtype), 1e9 * registers.of(dtype)) for dtype in dtypes}
        return cls(processor(), rates, _bandwidth(memory, cache), memory, cache, "measured here")

    def rate(self, dtype: str) -> float:
        """Operations per second in a dtype. Refused: a dtype that the machine's file does not have."""
        if dtype not in self.peak:
            raise refuse(
                "machine",
                "no peak for this dtype",
                f"{dtype} on {self.name} ({self.where})",
                f"one of {', '.join(self.peak)}",
                f"add {dtype} to [peak] of a machine file, or choose another dtype",
            )
        return self.peak[dtype]

    def bound(self, operations: float, moved: float, dtype: str, footprint: float | None = None) -> float:
        """The least seconds for some operations in a dtype that move some bytes.

        footprint: bytes of the distinct data, by default all bytes that are moved; up to `cache` they may never leave
        the cache, and the time has no bound by memory.
        """
        fits = (moved if footprint is None else footprint) <= self.cache
        return max(operations / self.rate(dtype), 0.0 if fits else moved / self.bandwidth)

    def to_toml(self) -> str:
        """The machine as the text of a machine file."""
        lines = [f"name = {json.dumps(self.name, ensure_ascii=False)}"]
        lines += [f"bandwidth = {float(self.bandwidth)!r}", f"memory = {self.memory}", f"cache = {self.cache}"]
        return "\n".join([*lines, "", "[peak]", *(f"{dtype} = {float(rate)!r}" for dtype, rate in self.peak.items())])


def _load(path: Path) -> dict[str, Any]:
    """The fields of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        given = f"{path}: {getattr(error, 'strerror', None) or first_line(error)}"
        expected = f"a TOML file with name, bandwidth, memory, cache and [peak] ({PAGE})"
        line = "correct the line, or copy a file of src/regard/ledger/machines"
        fix = "check the path" if isinstance(error, OSError) else line
        raise refuse("machine", "not a machine file", given, expected, fix) from error


def _impossible(fields: dict[str, Any]) -> Iterator[Reason]:
    """A reason for every unknown dtype, every number that no machine has, and a cache larger than the memory."""
    for dtype in fields["peak"]:
        if dtype not in DTYPES:
            yield Reason("an unknown dtype", dtype[:SHOWN], ", ".join(DTYPES), did_you_mean(dtype, DTYPES, PAGE))
    numbers = [(name, name, fields[name]) for name in ("bandwidth", "memory", "cache")]
    for name, kind, number in [*numbers, *((f"peak.{dtype}", "peak", rate) for dtype, rate in fields["peak"].items())]:
        lowest, highest, unit, example = LIMITS[kind]
        if not lowest <= number <= highest:  # NaN is not, either
            given, expected = f"{name} = {number:g}", f"{unit}, from {lowest:g} to {highest:g}"
            yield Reason("not a possible number", given, expected, f"check the unit: {example}")
    if fields["cache"] > fields["memory"]:
        given = f"cache = {fields['cache']:g}, memory = {fields['memory']:g}"
        expected = "a cache smaller than the memory"
        yield Reason("a cache larger than the memory", given, expected, "write both in bytes")


def _fastest_product(dtype: str) -> float:
    import torch

    fastest = 0.0
    for size in SIZES:
        left, right = torch.randn(2, size, size).to(getattr(torch, dtype))
        out = torch.empty_like(left)
        seconds = _best(partial(torch.mm, left, right, out=out))
        fastest = max(fastest, 2 * size**3 / seconds)
        if 8 * seconds > SECONDS:
            break  # the next size would take too long on this machine
    return fastest


def _bandwidth(memory: int, cache: int) -> float:
    """Bytes per second of reading with all threads, of a copy, and of a sum of two arrays: the best of many tries."""
    import torch

    from ..engines import peak
    from ..engines.jit.code.target import host
    from ..engines.jit.threads import count

    size = min(max(COPIED, 4 * cache), memory // 16)
    one, other = torch.ones(2, size // 4)
    out = torch.ones(size // 4)
    copy = 2 * size / _best(lambda: out.copy_(one))
    triad = 3 * size / _best(lambda: torch.add(one, other, alpha=2.0, out=out))
    return max(copy, triad, peak.reading(count(), peak.shape(host())[0], size))


def _best(work: Callable[[], object]) -> float:
    """The fewest seconds of the tries for which there is time, at least one; a first one is not timed."""
    end = time.perf_counter() + SECONDS
    work()
    seconds = math.inf
    while seconds == math.inf or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds
