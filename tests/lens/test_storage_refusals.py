"""Folders that hold something else than a run that was written: refused in a sentence, or harmless."""

import contextlib
import dataclasses
import functools
import json
import operator
import os
import re
import resource
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.lens.storage import manifest
from regard.lens.storage.folder import open_run, save
from tests.support.kept_runs import example, refused, rich


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
