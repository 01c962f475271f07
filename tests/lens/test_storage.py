"""Recorded runs in folders: what is written is what is read, to the bit; whatever else lies there is refused in a
sentence.
"""

import contextlib
import dataclasses
import functools
import json
import operator
import os
import re
import resource
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.common.files import strict_json as strict
from regard.language.expr import Const, frozen_table, key, query
from regard.lens import Run
from regard.lens.storage import folder as container
from regard.lens.storage import manifest
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
    assert "regard look … --out" in not_saved(example(), tmp_path / "page.html")
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


# Folders that hold something else than a run that was written: refused in a sentence, or harmless.


def rewrite(folder, change, *, wrong_by=0):
    """Changes the manifest, with a sum that fits it: change(it) may return the text that stands there instead."""
    found = json.loads((folder / "run.json").read_text())
    found.pop("sum")
    text = change(found)
    body = json.dumps(found).encode()[:-1]
    (folder / "run.json").write_bytes(text.encode() if text else body + b', "sum": %d}' % (zlib.crc32(body) + wrong_by))


def rehead(path, change):
    """Changes the header of a call's file; the numbers stay."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    text = (change(header) or json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def place_of(found, path):
    """What holds the value at a path such as calls.0.start, and the last name of the path."""
    *before, name = (int(part) if part.isdigit() else part for part in path.split("."))
    return functools.reduce(operator.getitem, before, found), name


def put(path, value):
    """The change that puts a value at a path; a function gives the value from what is beside it."""

    def change(found):
        place, name = place_of(found, path)
        place[name] = value(place) if callable(value) else value

    return change


def drop(path):
    """The change that removes what is at a path."""

    def change(found):
        place, name = place_of(found, path)
        del place[name]

    return change


MANIFESTS = [
    (lambda found: "{", "a manifest that cannot be read"),
    (lambda found: json.dumps(found)[:-1] + ', "facts": NaN}', "NaN is not valid JSON"),
    (lambda found: json.dumps(found)[:-1] + ', "model": "b"}', "two values under one name"),
    (lambda found: '{"format": ' + "[" * 100_000 + "}", "nested too deep"),
    (put("format", "a recipe"), "a file of another program"),
    (lambda found: "[1]", "a file of another program"),
    (put("version", 2), "version 2.*expected  version 1.*update regard"),
    (drop("model"), "without 'model'"),
    (put("more", 1), r"run\.json\.more"),
    (put("text", 1), r"run\.json\.text is 1\n  expected  str"),
    (put("calls.0.start", True), r"calls\[0\]\.start is True"),
    (put("calls.0.start", 10**30), "start is too large"),
    (put("axes.patches.picture", "é"), "the image is not valid base64"),
    (put("axes.keys.special", [10]), "special tokens outside the axis"),
    (put("axes.patches.grid", [2, 2, 2]), "not a grid of patches"),
    (put("axes.patches.grid", [2, 3]), "a grid that does not fit"),
    (put("axes.patches.segments.0.stop", 5), "segments that do not fit"),
    (put("axes.keys.unknown", [{"position": 10, "characters": "x"}]), "unknown tokens that do not fit the axis"),
    (put("axes.keys.unknown", [{"position": "1", "characters": "x"}]), "an unknown name"),
    (drop("axes.keys.tokens.0"), "does not fit its axes"),
    (put("calls.1.keys", "elsewhere"), "does not fit its axes"),
    (put("steps.0.position", 99), "steps outside every axis.*99"),
    (put("steps.1.position", -5), "steps outside every axis.*-5"),
    (put("calls.1.scale", 10**400), r"scale is 1000.*expected  float"),
    (put("calls", []), "no attention calls"),
    (put("calls.0.file", "../run/call-000.safetensors"), "a call in another file"),
    (put("calls.1.file", "call-000.safetensors"), "a call in another file"),
    (drop("calls.0.arrays.q"), "that the manifest does not list"),
    (put("calls.0.arrays.q2", lambda arrays: arrays["q"]), "a missing array"),
    (put("calls.0.arrays.q.shape", [4, 80]), "an array with another dtype or shape"),
    (put("calls.0.overview", None), "an incomplete overview"),
    (put("calls.0.rules.nodes.2.op", "causl"), "an unknown operator"),
    (put("calls.0.rules.nodes.2.of", [0]), "wrong number of arguments"),
    (put("calls.0.rules.nodes.2.of", [0, 2]), "a missing node"),
    (put("calls.0.rules.nodes.2.of", [0, -1]), "a missing node"),
    (put("calls.0.rules.nodes.0", "__import__('os')"), "__import__.*an object"),
    (put("calls.0.rules.nodes.0.var", "os"), "unknown variable"),
    (put("calls.0.rules.nodes.0", {"const": 2**64}), "more than 64 bits"),
    (put("calls.0.rules.mask", 999), "a missing node"),
    (put("calls.0.rules.mask", lambda rules: rules["score"]), "the mask is not a condition"),
    (put("calls.0.rules.score", lambda rules: rules["mask"]), "the score is not a number"),
    (put("calls.0.tables.0.array", "table.9"), "a missing table"),
    (put("calls.0.tables.0.call", 1), "a missing table"),
]


@pytest.mark.parametrize(("change", "sentence"), MANIFESTS)
def test_a_manifest_that_says_something_impossible_is_refused(kept, change, sentence):
    """Whatever a manifest claims is checked, and the sentence says what is wrong."""
    rewrite(kept, change)
    said = refused(kept)
    assert re.search(sentence, said, re.DOTALL) and len(said) < 5000, said


HEADERS = [
    (lambda found: "{{", "a damaged header"),
    (lambda found: "[]  ", "a damaged header"),
    (put("q.dtype", "F8_E4M3"), "an unknown dtype"),
    (put("q.dtype", "O"), "an unknown dtype"),
    (put("q.shape", [-4, -10, 8]), "an impossible array"),
    (put("q.shape", [0, 2**62, 2**62]), "an impossible array"),
    (drop("q.data_offsets.1"), "an impossible array"),
    (put("q.shape", [4, 10, 9]), "the offsets do not match the shape"),
    (put("q.data_offsets.0", -8), "the offsets do not match the shape"),
    (put("q", lambda header: header["k"]), "overlap"),
    (drop("lse"), "a gap between arrays|too long"),
]


@pytest.mark.parametrize(("change", "sentence"), HEADERS)
def test_a_header_that_says_something_impossible_is_refused(kept, change, sentence):
    """Lengths, offsets, dtypes and sizes are checked against the file before any array is made."""
    rehead(kept / "call-000.safetensors", change)
    said = refused(kept)
    assert re.search(sentence, said), said


@pytest.mark.parametrize("size", [0, 7, 8, 100, -1])
def test_a_truncated_file_is_refused(kept, size):
    """A call's file that ends early, in its header or in its numbers, is refused; so is one with something behind it,
    and one with a length of its header that would ask for exabytes.
    """
    path = kept / "call-001.safetensors"
    os.truncate(path, size % path.stat().st_size)
    assert re.search("not a safetensors file|too short|a file that cannot be read", refused(kept))
    whole = (kept / "call-000.safetensors").read_bytes()
    for raw, said in ((whole + b"more", "too long"), (b"\xff" * 8 + whole[8:], "not a safetensors file")):
        path.write_bytes(raw)
        assert said in refused(kept)


def test_what_was_changed_is_noticed(kept):
    """The sum at the end of the manifest is that of all before it; with `verify` every array is compared with its
    SHA-256, and one bit is enough.
    """
    path = kept / "call-000.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    open_run(kept)
    assert "the array was changed" in refused(kept, verify=True)
    rewrite(kept, lambda found: None, wrong_by=1)
    assert "the manifest was changed" in refused(kept)


def test_links_and_pipes_are_not_followed(kept, tmp_path):
    """A file of a run is a plain file of its folder: a link out of it is not opened, and a pipe is not waited for."""
    path = kept / "call-000.safetensors"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(kept)
    path.unlink()
    os.mkfifo(path)
    assert "is not a regular file" in refused(kept)
    path.unlink()
    assert "does not exist" in refused(kept)
    (kept / "run.json").rename(tmp_path / "manifest")
    (kept / "run.json").symlink_to(tmp_path / "manifest")
    assert "run.json is a link" in refused(kept)


def test_a_manifest_of_any_size_takes_no_memory(kept):
    """A file with a hole of 200 GB is refused by its size, and not read."""
    os.truncate(kept / "run.json", 200 * 10**9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert re.search("a manifest that cannot be read.*200 GB.*at most", refused(kept), re.DOTALL)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB


def test_a_manifest_that_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    """What a run says of itself may not be longer than what is read again."""
    monkeypatch.setattr(manifest, "LARGEST", 3000)
    with pytest.raises(rg.Refused, match="the manifest is too large"):
        dataclasses.replace(example(), facts={"long": "x" * 3000}).save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_reason_is_given_at_once(kept):
    """Faults in the files of two calls and in an axis are all told."""
    os.truncate(kept / "call-000.safetensors", 3)
    (kept / "call-001.safetensors").unlink()
    rewrite(kept, put("axes.keys.special", [99]))
    said = refused(kept)
    assert "not a safetensors file" in said and "does not exist" in said and "special tokens" in said


@pytest.mark.parametrize(
    ("change", "sentence", "longest"),
    [
        (put("calls.0.keys", "\x1b[2J\u202e" * 9999), "does not fit its axes", 1000),
        (put("calls.0.rules.nodes", [{"\x1b": 1}] * 9999), "19978 reasons", 20_000),
    ],
    ids=["long", "many"],
)
def test_what_a_foreign_file_says_of_itself_cannot_act(kept, change, sentence, longest):
    """Names in a refused file are shown without control characters, cut short, and no more than a screen of them."""
    rewrite(kept, change)
    said = refused(kept)
    assert sentence in said and not {"\x1b", "\u202e"} & set(said) and len(said) < longest


def test_folders_without_a_run_are_refused(tmp_path):
    """A path to nothing, a file, an empty folder, and a folder of other things."""
    assert "does not exist" in refused(tmp_path / "nowhere")
    (tmp_path / "file").write_text("words")
    assert "is a file" in refused(tmp_path / "file")
    assert "without a run.json" in refused(tmp_path)


@given(data=st.data())
@settings(max_examples=150)
def test_damage_is_refused_or_does_no_harm(damaged, data):
    """Whatever value a manifest holds in whatever place, and whatever bytes a header, a run opens and can be used, or
    is refused.
    """
    folder, files = damaged
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    if data.draw(st.booleans()):
        rewrite(folder, lambda found: mutated(found, data))
    else:
        raw = bytearray(files["call-000.safetensors"])
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, 1200))] = data.draw(st.integers(0, 255))
        (folder / "call-000.safetensors").write_bytes(raw)
    with contextlib.suppress(rg.Refused):
        for call in open_run(folder).calls:
            call.weights(rows=[0])


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    save(rich(), folder)
    return folder, {name: (folder / name).read_bytes() for name in ("run.json", "call-000.safetensors")}


def mutated(found, data):
    """Puts another value into a place that is drawn."""
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    value = st.recursive(
        plain | st.text(max_size=5),
        lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=2),
        max_leaves=4,
    )
    while True:
        name = data.draw(st.sampled_from(sorted(found) if isinstance(found, dict) else range(len(found))))
        if not found[name] or not isinstance(found[name], dict | list) or data.draw(st.integers(0, 4)) == 0:
            found[name] = data.draw(value)
            return
        found = found[name]
