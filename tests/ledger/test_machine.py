"""Machine: the files that are shipped, what is refused, and the measurement of this machine."""

import numpy as np
import pytest

from regard.engines.hardware import cache_bytes, memory_bytes
from regard.ledger.machine import DTYPES, LIMITS, SHIPPED, Machine
from tests.support.refusals import reasons_of, refused_in, refusing

GOOD = {"name": "'a card'", "bandwidth": "1e12", "memory": "80e9", "cache": "50_000_000"}


def written(tmp_path, peak="float32 = 1e13", **fields):
    """A machine file with these fields; None leaves one out."""
    lines = [f"{name} = {value}" for name, value in (GOOD | fields).items() if value is not None]
    path = tmp_path / "card.toml"
    path.write_text("\n".join([*lines, "[peak]", peak]), encoding="utf-8")
    return path


def refused(tmp_path, **fields):
    """The reasons for which a machine file with these fields is refused."""
    return reasons_of(Machine.read, written(tmp_path, **fields))


@pytest.mark.parametrize("name", Machine.shipped())
def test_a_shipped_machine(name):
    """It is found by name, its file names a source, and narrower numbers are not slower."""
    machine = Machine.named(name)

    assert machine.where == name and {"float32", "bfloat16", "float16"} <= machine.peak.keys()
    assert 'source = "' in (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    assert machine.peak.get("int8", np.inf) >= machine.peak["float16"]
    assert machine.peak["float32"] <= machine.peak["bfloat16"] == machine.peak["float16"]


def test_dense_rates_of_data_sheets():
    """Without sparsity, with which the data sheets of H100 and L4 have twice as much."""
    rates = {name: Machine.named(name).rate("bfloat16") / 1e12 for name in Machine.shipped()}

    cards = {"a100-80gb": 312, "h100-sxm": 989.4, "h200": 989.4, "l4": 121, "rtx-4090": 165.2}
    assert rates == cards | {"apple-m3-max": 14.3}


def test_a_file_is_read(tmp_path):
    """Whole numbers and floats are taken; the path is kept."""
    path = written(tmp_path, peak="bfloat16 = 989e12\nint8 = 1978_000_000_000_000")

    machine = Machine.read(path)

    assert machine == Machine.named(str(path))
    assert machine == Machine("a card", {"bfloat16": 989e12, "int8": 1978e12}, 1e12, 80 * 10**9, 50_000_000, str(path))


def test_what_is_written_is_read(tmp_path):
    """Any machine that is valid is the same after to_toml and read."""
    rng = np.random.default_rng(0)
    for number in range(50):
        draws = {kind: np.exp(rng.uniform(*np.log(limits[:2]))) for kind, limits in LIMITS.items()}
        memory, cache = int(draws["memory"]), int(min(draws["cache"], draws["memory"]))
        text = "".join(rng.permutation(list("aé\"'\\[]#=🂡 x")))
        peak = {str(name): float(draws["peak"]) for name in rng.permutation(DTYPES)[: rng.integers(1, 6)]}
        path = tmp_path / f"{number}.toml"
        machine = Machine(f"m{text}", peak, float(draws["bandwidth"]), memory, cache, str(path))
        path.write_text(machine.to_toml(), encoding="utf-8")

        assert Machine.read(path) == machine


@pytest.mark.parametrize("field", ["bandwidth", "memory", "cache", "peak"])
@pytest.mark.parametrize("value", ["0", "nan", "1e30", "3.35"])
def test_an_impossible_number_is_refused(tmp_path, field, value):
    """None that a machine can have: the field, what was written and the unit are named."""
    reason, *_ = refused(tmp_path, **{field: f"float32 = {value}" if field == "peak" else value})

    assert reason.given.startswith(f"{'peak.float32' if field == 'peak' else field} = ")
    assert LIMITS[field][2] in reason.expected and LIMITS[field][3] in reason.fix


def test_every_problem_is_listed(tmp_path):
    """Unknown and missing fields, and values of other types in one refusal; then unknown dtypes and numbers."""
    fields = {"name": "7", "bandwith": "1e12", "bandwidth": None, "memory": "'80'"}
    found = [reason.what for reason in refused(tmp_path, peak="float32 = true", **fields)]
    assert found == ["a missing name", "an unknown name", *["an unexpected value"] * 3]

    reasons = refused(tmp_path, peak="bflaot16 = 1e12\nfloat32 = 67", memory="80")
    assert len(reasons) == 4 and "did you mean 'bfloat16'?" in str(reasons)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        # A rate in TFLOP/s is the likely mistake, and the message says how to write it.
        (
            {"peak": "float32 = 67"},
            "not a possible number\n"
            "  given     peak.float32 = 67\n"
            "  expected  operations per second, from 1e+08 to 1e+18\n"
            "  fix       check the unit: 989 TFLOP/s is 989e12",
        ),
        ({"cache": "2e11", "memory": "1e11"}, "a cache larger than the memory"),
    ],
)
def test_wording(tmp_path, fields, words):
    """Wrong units, no rates, and a cache that is larger than the memory."""
    (reason,) = refused(tmp_path, **fields)
    assert words in str(reason)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"name = ", None],
)
def test_a_damaged_file_is_refused(tmp_path, monkeypatch, content):
    """Not UTF-8, not TOML; missing files and folders."""
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "bad.toml").write_bytes(content)
    for name in ("bad.toml",) if content else ("bad.toml", "folder/missing", "."):
        with refusing("not a machine file") as refused:
            Machine.named(name)
        assert name in refused.value.reasons[0].given


# The closest name that is known is proposed, dtypes are listed; nothing is assumed, nor measured before.
test_what_is_not_known = refused_in(
    {
        "did you mean 'h100-sxm'": lambda: Machine.named("h100-smx"),
        "did you mean 'a100-80gb'": lambda: Machine.named("a100-80g"),
        "did you mean 'here'": lambda: Machine.named("hre"),
        "one of float32, bfloat16, float16": lambda: Machine.named("rtx-4090").bound(1.0, 1.0, "float64"),
        "a dtype that is not measured.*int8": lambda: Machine.here(("int8",)),
        "a dtype that is not measured.*flaot16": lambda: Machine.here(("float32", "flaot16")),
    }
)


def test_the_bound_is_a_roofline():
    """The larger of the two times; data within the cache have no time of memory."""
    machine = Machine("m", {"float32": 1e12}, 1e10, 10**10, 10**6, "test")
    for operations, moved in np.exp(np.random.default_rng(1).uniform(0, 30, (200, 2))):
        inside, outside = (machine.bound(operations, moved, "float32", footprint=10**6 + more) for more in (0, 1))

        assert inside == operations / 1e12 and outside == max(operations / 1e12, moved / 1e10)
        assert machine.bound(operations, moved, "float32") == (inside if moved <= machine.cache else outside)


@pytest.mark.sweep
@pytest.mark.slow
def test_this_machine_is_measured():
    """Peaks, bandwidth and memory are those of some machine, and named as measured."""
    import torch  # noqa: F401, without which it is skipped

    machine = Machine.here()

    assert machine.where == "measured here" and machine.peak.keys() == {"float32", "bfloat16"}
    assert machine.memory == memory_bytes() and machine.cache == cache_bytes() < machine.memory
    assert all(1e7 < peak < 1e16 for peak in machine.peak.values())
    assert 1e8 < machine.bandwidth < 1e14


def test_the_last_cache_counts_once(tmp_path):
    """Cores that share a part of the last level list the same part; instructions have no data."""
    for core in range(4):
        rows = [(1, "Data", "48K", f"{core}"), (1, "Instruction", "32K", f"{core}"), (2, "Unified", "1M", f"{core}")]
        rows.append((3, "Unified", "32768K", "0-1" if core < 2 else "2-3"))
        for number, row in enumerate(rows):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{number}"
            folder.mkdir(parents=True)
            for name, value in zip(("level", "type", "size", "shared_cpu_list"), row):
                (folder / name).write_text(f"{value}\n")

    assert cache_bytes(tmp_path) == 64 << 20
