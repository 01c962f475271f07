"""Recorded runs in folders: what is written is what is read, to the bit; whatever else lies there is refused in a
sentence.
"""

import dataclasses
import functools
import os
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings

import regard as rg
from regard.common.files import strict_json as strict
from regard.language.expr import Const, frozen_table, key, query
from regard.lens import Run
from regard.lens.storage import folder as container
from regard.lens.storage import manifest as rules
from regard.lens.storage.folder import Writer, open_run, save
from regard.lens.storage.manifest import size_of
from tests.support.engines import at_every_pair, normal
from tests.support.kept_runs import contents, example, refused, rich
from tests.support.refusals import refusal, refusing
from tests.support.strategies import Dims, masks, scores

CALL = example().calls[0]
DIMS = Dims(B=1, G=1, H=2, Q=5, K=7, D=4, E=4)


# ---- what is written is what is read ---------------------------------------------------------------------------------


def test_a_run_comes_back_to_the_bit(tmp_path):
    """Axes, steps, facts, and every array and rule of every call are what they were, NaN and hostile text included."""
    run, folder = rich(), tmp_path / "run"
    notes = {"window": None, "scale": np.inf, "kinds": ["a", {"b": -1}], "difference": np.nan, "deep": [1, 2]}
    for again in (run.save(folder), Run.open(folder, verify=True)):
        assert (again.model, again.text, again.axes, again.steps) == (run.model, run.text, run.axes, run.steps)
        assert str(again.facts) == str({**run.facts, "folder": str(folder)})
        for mine, kept, own in zip(run.calls, again.calls, (notes, {}), strict=True):
            mine, kept = contents(mine) | {"notes": own}, contents(kept)
            assert all(str(kept[name]) == str(mine.pop(name)) for name in ("notes", "scale"))
            assert kept.items() >= mine.items()


def numbers_of(rule, dims=DIMS):
    """The value of a rule at every place."""
    shape = 1, dims.H, dims.Q, dims.K
    return at_every_pair(rule, shape, score=normal(*shape))


@given(mask=masks(DIMS), score=scores(DIMS))
@settings(max_examples=60)
def test_a_rule_comes_back_from_json(mask, score):
    """A rule that went through JSON has its value everywhere; once its tables are named by content, it is the very same
    node.
    """
    described, tables = rules.pack({"mask": mask, "score": score})
    read = strict.loads(strict.dumps(described, "test").encode())
    again = rules.unpack(read, [frozen_table(one.array, one.name) for one in tables])
    for rule, found in zip((mask, score), again.values(), strict=True):
        assert found.kind == rule.kind
        np.testing.assert_array_equal(numbers_of(found), numbers_of(rule))
    third = rules.unpack(*rules.pack(again))
    assert all(third[name] is again[name] for name in ("mask", "score"))


@pytest.mark.parametrize(
    "value", [True, 0, -(2**63), 2**63 - 1, -0.0, 1e-320, 0.1, float("nan"), float("inf"), float("-inf")]
)
def test_a_constant_keeps_its_kind_and_its_bits(value):
    """Truth values, whole numbers, floats, NaN and the infinities are told apart in JSON."""
    described, _ = rules.pack({"mask": Const(value)})
    assert rules.unpack(strict.loads(strict.dumps(described, "test").encode()), [])["mask"] is Const(value)


def test_what_is_shared_is_written_once(tmp_path):
    """A rule used twice in a rule is listed once, and a table that many calls read is in one file."""
    shared = rg.tanh(rg.score / 3)
    assert len(rules.pack({"score": shared * shared + shared})[0]["nodes"]) == 6
    seen = dataclasses.replace(CALL, mask=rg.table(np.tri(300, dtype=bool), "seen")[query, key])
    kept = save(dataclasses.replace(example(), calls=(seen,) * 3), tmp_path / "run").calls
    first, second, third = (path.stat().st_size for path in sorted((tmp_path / "run").glob("call-*")))
    assert first - second >= 300 * 300 and second == third
    assert kept[0].mask is kept[2].mask
    np.testing.assert_array_equal(kept[2].weights(), CALL.weights())


# ---- time and memory -------------------------------------------------------------------------------------------------


def test_opening_a_run_takes_no_memory(tmp_path):
    """A run of 160 MB opens in less than a megabyte; only what is asked for is read."""
    wide = np.zeros((4, 10, 1_000_000), np.float16)
    save(dataclasses.replace(example(), calls=(dataclasses.replace(CALL, q=wide, k=wide),)), tmp_path / "run")
    tracemalloc.start()
    (call,) = open_run(tmp_path / "run").calls
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    assert call.q.nbytes + call.k.nbytes == 160e6 and not call.q[2, 3, 345_678:345_681].any()


# ---- writing ---------------------------------------------------------------------------------------------------------


not_saved = functools.partial(refusal, save)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_written_over_unasked(tmp_path):
    """A folder with other things, a file and a run are in the way; only a run goes, when asked, and nothing else beside
    it.
    """
    folder, mine = tmp_path / "run", tmp_path / "mine.txt"
    mine.write_text("mine")
    for place, more in ((tmp_path, {}), (tmp_path, {"overwrite": True}), (mine, {"overwrite": True})):
        assert "the folder contains other files" in not_saved(example(), place, **more)
    assert names(tmp_path) == ["mine.txt"]
    save(example(), folder)
    (folder / "notes.txt").write_text("mine, too")
    assert "the folder contains a run" in not_saved(rich(), folder)
    assert len(open_run(folder).calls) == 1
    save(rich(), folder, overwrite=True)
    assert len(open_run(folder, verify=True).calls) == 2
    assert names(folder) == ["call-000.1.safetensors", "call-001.1.safetensors", "notes.txt", "run.json"]


def test_a_run_can_be_written_over_itself(tmp_path):
    """A run that is mapped from a folder is saved into that folder: what was opened before stays what it was."""
    first = save(example(), tmp_path / "run")
    second = save(first, tmp_path / "run", overwrite=True)
    save(rich(), tmp_path / "run", overwrite=True)
    weights = [run.calls[0].weights() for run in (first, second, example())]
    np.testing.assert_array_equal(weights[:2], weights[1:])


def broken_off(folder, **more):
    """A process that is killed while it writes its second call."""
    child = os.fork()
    if child == 0:
        with Writer(folder, **more) as writer:
            writer.add(CALL)
            writer.add(CALL)
            os._exit(0)
    os.waitpid(child, 0)


def test_a_run_that_broke_off_is_recognised(tmp_path):
    """Calls without a manifest are refused as such, are in the way, and go with the next run when asked."""
    folder = tmp_path / "run"
    broken_off(folder)
    assert "an interrupted recording" in refused(folder)
    assert "the folder contains an interrupted recording" in not_saved(example(), folder)
    save(example(), folder, overwrite=True)
    assert names(folder) == ["call-000.safetensors", "run.json"]


def test_the_old_run_stays_until_the_new_one_is_whole(kept):
    """Killed while it writes over a run, a process leaves the old run as it was; the next one clears up."""
    broken_off(kept, overwrite=True)
    assert len(open_run(kept, verify=True).calls) == 2
    save(example(), kept, overwrite=True)
    assert len(open_run(kept, verify=True).calls) == 1
    assert len(names(kept)) == 2


def test_an_error_leaves_nothing_behind(tmp_path, kept):
    """What was written before an error is removed: a new folder whole, an old run's folder to what it was."""
    before = names(kept)
    for folder in (tmp_path / "new", kept):
        with pytest.raises(KeyError), Writer(folder, overwrite=True) as writer:
            writer.add(CALL)
            (folder / container.DRAFT).write_text("half")
            raise KeyError
    assert not (tmp_path / "new").exists() and names(kept) == before


def test_limits_are_told_before_they_are_passed(tmp_path):
    """A run, or the call that would pass the limit, is refused with what it takes and what is allowed; nothing is
    left.
    """
    said = not_saved(dataclasses.replace(example(), calls=(CALL, CALL)), tmp_path / "run", limit="5kB")
    assert "at most 5 kB" in said and "2 calls: " in said
    with (
        refusing(r"call 1, attention: [0-9.]+ kB, after [0-9.]+ kB"),
        Writer(tmp_path / "run", "15kB") as writer,
    ):
        writer.add(CALL)
        assert writer.written == (tmp_path / "run" / "call-000.safetensors").stat().st_size <= 15_000
        writer.add(CALL)
    assert names(tmp_path) == []


def test_two_cannot_write_at_once(tmp_path):
    """While a run is written into a folder, a second one is refused there."""
    with Writer(tmp_path / "run") as writer:
        with refusing("the folder is in use"), Writer(tmp_path / "run"):
            pass
        writer.add(CALL)
        writer.finish("a", "b", example().axes)
    assert len(open_run(tmp_path / "run").calls) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"notes": {"a": [{1, 2}]}}, "notes.a.0.: set"),
        ({"notes": {1: 2}}, "notes: dict"),
        ({"notes": {"a": {"float": "nan"}}}, "notes.a: dict"),
        ({"v": np.ones((4, 9, 2))}, "K = 10, as in k"),
        ({"x": np.ones((10, 2), complex)}, "x of complex128"),
        ({"lse": np.ones((4, 9))}, "Q = 10, as in q"),
        ({"rows": {"mine": np.ones(3)}}, "rows.mine of .3."),
    ],
)
def test_what_cannot_be_kept_is_refused_before_it_is_written(tmp_path, change, sentence):
    """Notes that JSON cannot hold, arrays that do not fit each other and numbers of other kinds are named."""
    call = dataclasses.replace(CALL, **change)
    assert re.search(sentence, not_saved(dataclasses.replace(example(), calls=(call,)), tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_numbers_and_sizes_are_read():
    """Powers of 1000 without an i, of 1024 with one; a refusal shows how sizes are written. In JSON a float may be
    written as an integer, if it is exact; a truth value is no number.
    """
    numbers = {2.5: True, 3: True, True: False, "3": False, None: False, 2**60 + 1: False}
    assert [[*strict.wrong(number, float, "scale")] == [] for number in numbers] == list(numbers.values())
    sizes = {"2GB": 2e9, "1.5 MiB": 1536 * 1024, "10": 10, 7: 7, "3 kb": 3000, "1TB": 1e12}
    assert [size_of(size, "test") for size in sizes] == list(sizes.values())
    for wrong in ("", "GB", "-1", "0", "1e9", "2 G B", "nan", "1 PB", True, None, 2.5e-3, "9" * 400):
        with refusing("limit='2GB'"):
            size_of(wrong, "test")
