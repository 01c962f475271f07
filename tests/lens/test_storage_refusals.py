"""Folders that hold something else than a run that was written: refused in a sentence, or harmless."""

import dataclasses
import json
import os
import re
import resource
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.lens.storage import (
    manifest,
)
from regard.lens.storage.folder import open_run, save
from tests.support.kept_runs import example, refused, rich


def rewrite(folder, change, *, wrong_by=0) -> None:
    """Changes the manifest, with a sum that fits it: change(it) may return the text that stands there instead."""
    found = json.loads((folder / "run.json").read_text())
    found.pop("sum")
    text = change(found)
    body = json.dumps(found).encode()[:-1]
    (folder / "run.json").write_bytes(text.encode() if text else body + b', "sum": %d}' % (zlib.crc32(body) + wrong_by))


def rehead(path, change) -> None:
    """Changes the header of a call's file; the numbers stay."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    text = (change(header) or json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def deep(found, *path, to):
    """Puts a value at a place within lists and dictionaries."""
    for name in path[:-1]:
        found = found[name]
    found[path[-1]] = to


def put(*path, to):
    """The change that puts a value at a place."""
    return lambda found: deep(found, *path, to=to)


MANIFESTS = {
    "not JSON": (lambda found: "{", "a manifest that cannot be read"),
    "a bare NaN": (lambda found: json.dumps(found)[:-1] + ', "facts": NaN}', "NaN is not valid JSON"),
    "a name twice": (lambda found: json.dumps(found)[:-1] + ', "model": "b"}', "two values under one name"),
    "nested deeply": (lambda found: '{"format": ' + "[" * 100_000 + "}", "nested too deep"),
    "no run": (put("format", to="a recipe"), "a file of another program"),
    "a list": (lambda found: "[1]", "a file of another program"),
    "newer": (put("version", to=2), "version 2.*expected  version 1.*update regard"),
    "a missing name": (lambda found: found.pop("model") and None, "without 'model'"),
    "an unknown name": (put("more", to=1), r"run\.json\.more"),
    "a number for text": (put("text", to=1), r"run\.json\.text is 1\n  expected  str"),
    "a truth for a number": (put("calls", 0, "start", to=True), r"calls\[0\]\.start is True"),
    "a huge start": (put("calls", 0, "start", to=10**30), "start is too large"),
    "no image": (put("axes", "patches", "picture", to="é"), "the image is not valid base64"),
    "a special token beyond": (
        put("axes", "keys", "special", to=[10]),
        "special tokens outside the axis",
    ),
    "a grid of three": (put("axes", "patches", "grid", to=[2, 2, 2]), "not a grid of patches"),
    "a grid that does not fit": (
        put("axes", "patches", "grid", to=[2, 3]),
        "a grid that does not fit",
    ),
    "segments that overlap": (
        put("axes", "patches", "segments", 0, "stop", to=5),
        "segments that do not fit",
    ),
    "an unknown token beyond": (
        put("axes", "keys", "unknown", to=[{"position": 10, "characters": "x"}]),
        "unknown tokens that do not fit the axis",
    ),
    "an unknown token of another form": (
        put("axes", "keys", "unknown", to=[{"position": "1", "characters": "x"}]),
        "an unknown name",
    ),
    "an axis too short": (lambda found: found["axes"]["keys"]["tokens"].pop() and None, "does not fit its axes"),
    "no such axis": (put("calls", 1, "keys", to="elsewhere"), "does not fit its axes"),
    "a step after the text": (put("steps", 0, "position", to=99), "steps outside every axis.*99"),
    "a step before the text": (
        put("steps", 1, "position", to=-5),
        "steps outside every axis.*-5",
    ),
    "a scale of 401 digits": (
        put("calls", 1, "scale", to=10**400),
        r"scale is 1000.*expected  float",
    ),
    "a probability of 401 digits": (
        put("steps", 0, "candidates", 0, "probability", to=-(10**400)),
        r"probability is -1000.*expected  float",
    ),
    "no call": (put("calls", to=[]), "no attention calls"),
    "another file": (
        put("calls", 0, "file", to="../run/call-000.safetensors"),
        "a call in another file",
    ),
    "an absolute path": (put("calls", 1, "file", to="/etc/passwd"), "a call in another file"),
    "two calls in one file": (
        put("calls", 1, "file", to="call-000.safetensors"),
        "a call in another file",
    ),
    "an array missing": (
        lambda found: found["calls"][0]["arrays"].pop("q") and None,
        "that the manifest does not list",
    ),
    "an array too many": (
        lambda found: deep(found, "calls", 0, "arrays", "q2", to=found["calls"][0]["arrays"]["q"]),
        "a missing array",
    ),
    "another shape": (
        put("calls", 0, "arrays", "q", "shape", to=[4, 80]),
        "an array with another dtype or shape",
    ),
    "an incomplete overview": (put("calls", 0, "overview", to=None), "an incomplete overview"),
    "an unknown operator": (
        put("calls", 0, "rules", "nodes", 2, "op", to="causl"),
        "an unknown operator",
    ),
    "too many arguments": (
        put("calls", 0, "rules", "nodes", 2, "of", to=[0]),
        "wrong number of arguments",
    ),
    "a later node": (
        put("calls", 0, "rules", "nodes", 2, "of", to=[0, 2]),
        "a missing node",
    ),
    "a negative node": (
        put("calls", 0, "rules", "nodes", 2, "of", to=[0, -1]),
        "a missing node",
    ),
    "a node of code": (
        put("calls", 0, "rules", "nodes", 0, to="__import__('os')"),
        "not a node of a rule",
    ),
    "an unknown variable": (
        put("calls", 0, "rules", "nodes", 0, "var", to="os"),
        "unknown variable",
    ),
    "a number of 65 bits": (
        put("calls", 0, "rules", "nodes", 0, to={"const": 2**64}),
        "more than 64 bits",
    ),
    "a missing root": (
        put("calls", 0, "rules", "mask", to=999),
        "a missing node",
    ),
    "a score as a mask": (
        lambda found: deep(found, "calls", 0, "rules", "mask", to=found["calls"][0]["rules"]["score"]),
        "the mask is not a condition",
    ),
    "a mask as a score": (
        lambda found: deep(found, "calls", 0, "rules", "score", to=found["calls"][0]["rules"]["mask"]),
        "the score is not a number",
    ),
    "a missing table": (
        put("calls", 0, "tables", 0, "array", to="table.9"),
        "a missing table",
    ),
    "a table of a later call": (
        put("calls", 0, "tables", 0, "call", to=1),
        "a missing table",
    ),
}


@pytest.mark.parametrize("change, sentence", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_manifest_that_says_something_impossible_is_refused(kept, change, sentence):
    """Whatever a manifest claims is checked, and the sentence says what is wrong."""
    rewrite(kept, change)
    said = refused(kept)
    assert re.search(sentence, said, re.DOTALL), said
    assert len(said) < 5000


HEADERS = {
    "not JSON": (lambda found: "{{", "a damaged header"),
    "a list": (lambda found: "[]  ", "a damaged header"),
    "an unknown dtype": (put("q", "dtype", to="F8_E4M3"), "an unknown dtype"),
    "a dtype of code": (put("q", "dtype", to="O"), "an unknown dtype"),
    "a negative size": (put("q", "shape", to=[-4, -10, 8]), "an impossible array"),
    "a size beyond all disks": (put("q", "shape", to=[0, 2**62, 2**62]), "an impossible array"),
    "one offset": (lambda found: found["q"]["data_offsets"].pop() and None, "an impossible array"),
    "a shape that is too large": (
        put("q", "shape", to=[4, 10, 9]),
        "the offsets do not match the shape",
    ),
    "an offset below 0": (
        put("q", "data_offsets", 0, to=-8),
        "the offsets do not match the shape",
    ),
    "arrays that overlap": (
        lambda found: deep(found, "q", "data_offsets", to=found["k"]["data_offsets"]),
        "overlap|do not match",
    ),
    "an array missing": (lambda found: found.pop("lse") and None, "a gap between arrays|too long"),
}


@pytest.mark.parametrize("change, sentence", HEADERS.values(), ids=HEADERS.keys())
def test_a_header_that_says_something_impossible_is_refused(kept, change, sentence):
    """Lengths, offsets, dtypes and sizes are checked against the file before any array is made."""
    rehead(kept / "call-000.safetensors", change)
    said = refused(kept)
    assert re.search(sentence, said), said


@pytest.mark.parametrize("size", [0, 7, 8, 100, -1])
def test_a_truncated_file_is_refused(kept, size):
    """A call's file that ends early, in its header or in its numbers, is refused; so is one with something behind
    it.
    """
    path = kept / "call-001.safetensors"
    os.truncate(path, size % path.stat().st_size)
    assert re.search("not a safetensors file|too short|a file that cannot be read", refused(kept))
    path.write_bytes((kept / "call-000.safetensors").read_bytes() + b"more")
    assert "too long" in refused(kept)


def test_a_header_longer_than_its_file_is_refused(kept):
    """A length that would ask for exabytes is compared with the file first."""
    path = kept / "call-000.safetensors"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    assert "not a safetensors file" in refused(kept)


def test_a_changed_manifest_is_noticed(kept):
    """The sum at the end of the manifest is that of all before it."""
    rewrite(kept, lambda found: None, wrong_by=1)
    assert "the manifest was changed" in refused(kept)


def test_a_changed_number_is_noticed_when_asked(kept):
    """With `verify` every array is compared with its SHA-256; one bit is enough."""
    path = kept / "call-000.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    open_run(kept)
    assert "the array was changed" in refused(kept, verify=True)


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
    rewrite(kept, lambda found: deep(found, "axes", "keys", "special", to=[99]))
    said = refused(kept)
    assert "not a safetensors file" in said and "does not exist" in said and "special tokens" in said


def test_what_a_foreign_file_says_of_itself_cannot_act(kept):
    """Names in a refused file are shown without control characters, cut short, and no more than a screen of them."""
    rewrite(
        kept,
        lambda found: (
            deep(found, "calls", 0, "name", to="\x1b[31m\u202e" * 9999) or deep(found, "calls", 0, "keys", to="\x1b[2J")
        ),
    )
    said = refused(kept)
    assert "does not fit its axes" in said and "\x1b" not in said and "\u202e" not in said and len(said) < 1000
    rewrite(kept, lambda found: deep(found, "calls", 0, "rules", "nodes", to=[{"\x1b": 1}] * 9999))
    said = refused(kept)
    assert "9979 reasons" in said and "\x1b" not in said and len(said) < 20_000


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
    folder, manifest, header = damaged
    (folder / "run.json").write_bytes(manifest)
    (folder / "call-000.safetensors").write_bytes(header)
    if data.draw(st.booleans()):
        rewrite(folder, lambda found: mutated(found, data))
    else:
        raw = bytearray(header)
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, 1200))] = data.draw(st.integers(0, 255))
        (folder / "call-000.safetensors").write_bytes(raw)
    try:
        run = open_run(folder)
    except rg.Refused:
        return
    for call in run.calls:
        call.weights(rows=[0])


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    save(rich(), folder)
    return folder, (folder / "run.json").read_bytes(), (folder / "call-000.safetensors").read_bytes()


def mutated(found, data) -> None:
    """Puts another value into a place that is drawn."""
    value = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=2),
        max_leaves=4,
    )
    while True:
        name = data.draw(st.sampled_from(sorted(found) if isinstance(found, dict) else range(len(found))))
        if not found[name] or not isinstance(found[name], dict | list) or data.draw(st.integers(0, 4)) == 0:
            found[name] = data.draw(value)
            return
        found = found[name]
