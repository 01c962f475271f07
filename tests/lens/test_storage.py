"""Recorded runs in folders: what is written is what is read, to the bit; whatever else lies there is refused in a
sentence.
"""

import dataclasses
import json
import os
import re
import resource
import struct
import time
import tracemalloc
import zlib
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.language.analysis import evaluate
from regard.language.expr import Const, frozen_table, key, query
from regard.lens import Axis, Call, Overview, Run, Segment, Step
from regard.lens.look import of_arrays
from regard.lens.storage import (
    byte_sizes as sizes,
)
from regard.lens.storage import (
    folder as container,
)
from regard.lens.storage import (
    manifest,
    tensors,
)
from regard.lens.storage import (
    rules_json as rules,
)
from regard.lens.storage import (
    strict_json as strict,
)
from regard.lens.storage.folder import Writer, open_run, save
from tests.support.strategies import Dims, masks, scores

DIMS = Dims(B=1, G=1, H=2, Q=5, K=7, D=4, E=4)
HOSTILE = ("</script>", "\u202egnp.exe", "\ud800", "\x00", "🦊", "x" * 10_000, "", '"')


def example(**more) -> Run:
    """A small run of one call with rules."""
    numbers = np.random.default_rng(0).standard_normal((2, 4, 10, 8), dtype=np.float32)
    return of_arrays(*numbers, mask=rg.causal(), score=rg.alibi(4), **more)


def rich() -> Run:
    """A run with everything that a run can have."""
    random = np.random.default_rng(1)
    run = example(v=random.standard_normal((4, 10, 3), dtype=np.float32))
    (call,) = run.calls
    full = dataclasses.replace(
        call,
        q=call.q.astype(ml_dtypes.bfloat16),
        k=call.k.astype(np.float16)[:2],
        v=call.v[:2].astype(np.float64),
        layer=None,
        sinks=random.standard_normal((4, 1)),
        x=random.standard_normal((10, 32)),
        out=random.standard_normal((4, 3, 10)).swapaxes(1, 2),
        overview=Overview(*random.random((2, 4, 5, 5), np.float32), "sampled 1 row of 2"),
        engine="jit",
        start=3,
        scale=float("nan"),
        notes={
            "window": None,
            "scale": float("inf"),
            "kinds": ["a", {"b": -1}],
            "difference": np.float32("nan"),
            "deep": (1, 2),
        },
    )
    given = Call("weights only", 1, "keys", "keys", call.lse, given=call.weights(), mask=key <= query)
    picture = Axis(
        "patches",
        (*HOSTILE, "a"),
        (True, *[False] * 8),
        (2, 4),
        b"\x89PNG\r\n",
        (Segment(1, 4, "ä"), Segment(4, 9, "b")),
    )
    steps = (Step(8, ((" the", 0.75), ("</script>", 0.25))), Step(9, ()))
    return Run(
        "a model\ud800",
        "words\u2028",
        {"keys": run.axes["keys"], "patches": picture},
        (full, given),
        steps,
        {"nan": np.nan},
    )


def contents(call: Call) -> dict:
    """Every field of a call, arrays as (dtype, shape, bytes)."""

    def plain(value):
        if isinstance(value, np.ndarray):
            return value.dtype.name, value.shape, value.tobytes()
        if isinstance(value, Overview):
            return plain(value.share), plain(value.largest), value.exact
        return {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else value

    return {field.name: plain(getattr(call, field.name)) for field in dataclasses.fields(call)}


# ---- what is written is what is read ---------------------------------------------------------------------------------


def test_a_run_comes_back_to_the_bit(tmp_path):
    """Axes, steps, facts, and every array and rule of every call are what they were, NaN and hostile text included."""
    run = rich()
    for again in (run.save(tmp_path / "run"), Run.open(tmp_path / "run", verify=True)):
        assert (again.model, again.text, again.axes, again.steps) == (run.model, run.text, run.axes, run.steps)
        assert str(again.facts) == str(dict(run.facts) | {"folder": str(tmp_path / "run")})
        for mine, kept in zip(run.calls, again.calls, strict=True):
            mine, kept = contents(mine), contents(kept)
            notes = {"window": None, "scale": np.inf, "kinds": ["a", {"b": -1}], "difference": np.nan, "deep": [1, 2]}
            assert str(kept.pop("notes")) == str(notes if mine.pop("notes") else {})
            assert str(kept.pop("scale")) == str(mine.pop("scale"))
            assert kept == mine


def test_the_weights_of_a_kept_run_are_those_of_attention(tmp_path):
    """Weights computed from the files are those that `attention_weights` gives for the arrays that were recorded."""
    q, k = np.random.default_rng(0).standard_normal((2, 4, 10, 8), dtype=np.float32)
    document = rg.table(np.arange(10) // 4, "document")
    rule = {
        "mask": rg.causal() & (document[query] == document[key]),
        "score": rg.softcap(3.0) - rg.table(np.ones(4), "slope")[rg.head],
    }
    save(of_arrays(q, k, **rule), tmp_path / "run")
    np.testing.assert_allclose(
        open_run(tmp_path / "run").calls[0].weights(), rg.attention_weights(q, k, **rule), atol=1e-6
    )


def test_the_files_are_safetensors(tmp_path):
    """The safetensors library reads the calls as they are, and what it writes is mapped."""
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    save(example(), tmp_path / "run")
    path = tmp_path / "run" / "call-000.safetensors"
    mine, theirs = tensors.mapped(path, "test"), library.load_file(path)
    assert mine.keys() == theirs.keys()
    library.save_file({name: array + 1 for name, array in theirs.items()}, tmp_path / "other", {"format": "np"})
    for name, array in tensors.mapped(tmp_path / "other", "test").items():
        np.testing.assert_array_equal(theirs[name], mine[name])
        np.testing.assert_array_equal(array, mine[name] + 1)
        assert mine[name].flags.aligned and not mine[name].flags.writeable


def numbers_of(rule, dims=DIMS):
    """The value of a rule at every place."""
    h, i, j = np.ogrid[: dims.H, : dims.Q, : dims.K]
    return evaluate(rule, {"batch": 0 * h, "head": h, "query": i, "key": j, "score": np.sin(h + 2.0 * i - 3 * j)})


@given(mask=masks(DIMS), score=scores(DIMS))
@settings(max_examples=60)
def test_a_rule_comes_back_from_json(mask, score):
    """A rule that went through JSON has its value everywhere; once its tables are named by content, it is the very same
    node.
    """
    described, tables = rules.pack({"mask": mask, "score": score})
    read = strict.loads(strict.dumps(described, "test").encode())
    frozen = [frozen_table(one.array, one.name) for one in tables]
    again = rules.unpack(read, frozen, "test")
    for rule, found in ((mask, again["mask"]), (score, again["score"])):
        assert found.kind == rule.kind
        np.testing.assert_array_equal(numbers_of(found), numbers_of(rule))
    described, tables = rules.pack(again)
    third = rules.unpack(described, tables, "test")
    assert third["mask"] is again["mask"] and third["score"] is again["score"]


@pytest.mark.parametrize(
    "value", [True, 0, -(2**63), 2**63 - 1, -0.0, 1e-320, 0.1, float("nan"), float("inf"), float("-inf")]
)
def test_a_constant_keeps_its_kind_and_its_bits(value):
    """Truth values, whole numbers, floats, NaN and the infinities are told apart in JSON."""
    described, _ = rules.pack({"mask": Const(value)})
    found = rules.unpack(strict.loads(strict.dumps(described, "test").encode()), [], "test")
    assert found["mask"] is Const(value)


def test_what_is_shared_is_written_once(tmp_path):
    """A rule used twice in a rule is listed once, and a table that many calls read is in one file."""
    shared = rg.tanh(rg.score / 3)
    assert len(rules.pack({"score": shared * shared + shared})[0]["nodes"]) == 6
    (call,) = example().calls
    seen = rg.table(np.tri(300, dtype=bool), "seen")
    calls = tuple(dataclasses.replace(call, mask=seen[query, key], name=f"layers.{i}") for i in range(5))
    save(dataclasses.replace(example(), calls=calls), tmp_path / "run")
    sizes_ = [path.stat().st_size for path in sorted((tmp_path / "run").glob("call-*"))]
    assert sizes_[0] - sizes_[1] >= 300 * 300 and len(set(sizes_[1:])) == 1
    kept = open_run(tmp_path / "run").calls
    assert all(one.mask is kept[0].mask for one in kept)
    for one in kept:
        np.testing.assert_array_equal(one.weights(), call.weights())


# ---- time and memory -------------------------------------------------------------------------------------------------


def test_opening_ten_gigabytes_takes_no_time_and_no_memory(tmp_path, monkeypatch):
    """A run of 20 GB opens in milliseconds, in less than a megabyte; only what is asked for is read."""
    write = tensors.write

    def hollow(path, arrays):
        write(path, arrays)
        os.truncate(path, path.stat().st_size + sum(array.nbytes for array in arrays.values()))

    monkeypatch.setattr(tensors, "blocks", lambda array: ())
    monkeypatch.setattr(tensors, "write", hollow)
    monkeypatch.setattr(container.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1e12))
    (call,) = example().calls
    wide = np.broadcast_to(np.float32(0), (4, 10, 64_000_000))
    save(dataclasses.replace(example(), calls=(dataclasses.replace(call, q=wide, k=wide),)), tmp_path / "run")
    open_run(tmp_path / "run")
    tracemalloc.start()
    began = time.process_time()
    (call,) = open_run(tmp_path / "run").calls
    taken = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert call.q.nbytes + call.k.nbytes > 20e9
    assert peak < 1e6
    assert taken < 0.1
    assert (call.q[2, 3, 12_345_678:12_345_681] == 0).all()


# ---- what is refused -------------------------------------------------------------------------------------------------


def refused(folder, **more) -> str:
    """The sentences with which a folder is not opened."""
    with pytest.raises(rg.Refused) as caught:
        open_run(folder, **more)
    return str(caught.value)


@pytest.fixture
def kept(tmp_path):
    """The folder of a good run."""
    save(rich(), tmp_path / "run")
    return tmp_path / "run"


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


MANIFESTS = {
    "not JSON": (lambda found: "{", "a manifest that cannot be read"),
    "a bare NaN": (lambda found: json.dumps(found)[:-1] + ', "facts": NaN}', "NaN is no JSON"),
    "a name twice": (lambda found: json.dumps(found)[:-1] + ', "model": "b"}', "two values under one name"),
    "nested deeply": (lambda found: '{"format": ' + "[" * 100_000 + "}", "nested too deep"),
    "no run": (lambda found: deep(found, "format", to="a recipe"), "a file of another program"),
    "a list": (lambda found: "[1]", "a file of another program"),
    "newer": (lambda found: deep(found, "version", to=2), "version 2.*expected  version 1.*update regard"),
    "a missing name": (lambda found: found.pop("model") and None, "without 'model'"),
    "an unknown name": (lambda found: deep(found, "more", to=1), r"run\.json\.more"),
    "a number for text": (lambda found: deep(found, "text", to=1), r"run\.json\.text is 1\n  expected  str"),
    "a truth for a number": (lambda found: deep(found, "calls", 0, "start", to=True), r"calls\[0\]\.start is True"),
    "a huge start": (lambda found: deep(found, "calls", 0, "start", to=10**30), "a start beyond all axes"),
    "no picture": (lambda found: deep(found, "axes", "patches", "picture", to="é"), "no picture"),
    "a special token beyond": (
        lambda found: deep(found, "axes", "keys", "special", to=[10]),
        "special tokens that are not there",
    ),
    "a grid of three": (lambda found: deep(found, "axes", "patches", "grid", to=[2, 2, 2]), "no grid"),
    "a grid that does not fit": (
        lambda found: deep(found, "axes", "patches", "grid", to=[2, 3]),
        "a grid that does not fit",
    ),
    "segments that overlap": (
        lambda found: deep(found, "axes", "patches", "segments", 0, "stop", to=5),
        "segments that do not fit",
    ),
    "an axis too short": (lambda found: found["axes"]["keys"]["tokens"].pop() and None, "does not fit its axes"),
    "no such axis": (lambda found: deep(found, "calls", 1, "keys", to="elsewhere"), "does not fit its axes"),
    "a step after the text": (lambda found: deep(found, "steps", 0, "position", to=99), "steps outside every axis.*99"),
    "a step before the text": (
        lambda found: deep(found, "steps", 1, "position", to=-5),
        "steps outside every axis.*-5",
    ),
    "a scale of 401 digits": (
        lambda found: deep(found, "calls", 1, "scale", to=10**400),
        r"scale is 1000.*expected  float",
    ),
    "a probability of 401 digits": (
        lambda found: deep(found, "steps", 0, "candidates", 0, "probability", to=-(10**400)),
        r"probability is -1000.*expected  float",
    ),
    "no call": (lambda found: deep(found, "calls", to=[]), "nothing to look at"),
    "another file": (
        lambda found: deep(found, "calls", 0, "file", to="../run/call-000.safetensors"),
        "a call in another file",
    ),
    "an absolute path": (lambda found: deep(found, "calls", 1, "file", to="/etc/passwd"), "a call in another file"),
    "two calls in one file": (
        lambda found: deep(found, "calls", 1, "file", to="call-000.safetensors"),
        "a call in another file",
    ),
    "an array missing": (
        lambda found: found["calls"][0]["arrays"].pop("q") and None,
        "that the manifest does not list",
    ),
    "an array too many": (
        lambda found: deep(found, "calls", 0, "arrays", "q2", to=found["calls"][0]["arrays"]["q"]),
        "not there",
    ),
    "another shape": (
        lambda found: deep(found, "calls", 0, "arrays", "q", "shape", to=[4, 80]),
        "an array of another kind",
    ),
    "half an overview": (lambda found: deep(found, "calls", 0, "overview", to=None), "half an overview"),
    "an unknown operator": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 2, "op", to="causl"),
        "an unknown operator",
    ),
    "too many arguments": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 2, "of", to=[0]),
        "wrong number of arguments",
    ),
    "a later node": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 2, "of", to=[0, 2]),
        "a node that is not there",
    ),
    "a negative node": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 2, "of", to=[0, -1]),
        "a node that is not there",
    ),
    "a node of code": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 0, to="__import__('os')"),
        "no node of a rule",
    ),
    "an unknown variable": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 0, "var", to="os"),
        "unknown variable",
    ),
    "a number of 65 bits": (
        lambda found: deep(found, "calls", 0, "rules", "nodes", 0, to={"const": 2**64}),
        "more than 64 bits",
    ),
    "a root that is not there": (
        lambda found: deep(found, "calls", 0, "rules", "mask", to=999),
        "a node that is not there",
    ),
    "a score as a mask": (
        lambda found: deep(found, "calls", 0, "rules", "mask", to=found["calls"][0]["rules"]["score"]),
        "no mask",
    ),
    "a mask as a score": (
        lambda found: deep(found, "calls", 0, "rules", "score", to=found["calls"][0]["rules"]["mask"]),
        "no score",
    ),
    "a table that is not there": (
        lambda found: deep(found, "calls", 0, "tables", 0, "array", to="table.9"),
        "a table that is not there",
    ),
    "a table of a later call": (
        lambda found: deep(found, "calls", 0, "tables", 0, "call", to=1),
        "a table that is not there",
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
    "an unknown dtype": (lambda found: deep(found, "q", "dtype", to="F8_E4M3"), "numbers of an unknown kind"),
    "a dtype of code": (lambda found: deep(found, "q", "dtype", to="O"), "numbers of an unknown kind"),
    "a negative size": (lambda found: deep(found, "q", "shape", to=[-4, -10, 8]), "an impossible array"),
    "a size beyond all disks": (lambda found: deep(found, "q", "shape", to=[0, 2**62, 2**62]), "an impossible array"),
    "one offset": (lambda found: found["q"]["data_offsets"].pop() and None, "an impossible array"),
    "a shape that is too large": (lambda found: deep(found, "q", "shape", to=[4, 10, 9]), "does not fit its place"),
    "an offset below 0": (lambda found: deep(found, "q", "data_offsets", 0, to=-8), "does not fit its place"),
    "arrays that overlap": (
        lambda found: deep(found, "q", "data_offsets", to=found["k"]["data_offsets"]),
        "overlap|does not fit",
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
    assert re.search("no safetensors file|too short|a file that cannot be read", refused(kept))
    path.write_bytes((kept / "call-000.safetensors").read_bytes() + b"more")
    assert "too long" in refused(kept)


def test_a_header_longer_than_its_file_is_refused(kept):
    """A length that would ask for exabytes is compared with the file first."""
    path = kept / "call-000.safetensors"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    assert "no safetensors file" in refused(kept)


def test_a_changed_manifest_is_noticed(kept):
    """The sum at the end of the manifest is that of all before it."""
    rewrite(kept, lambda found: None, wrong_by=1)
    assert "a manifest that has changed" in refused(kept)


def test_a_changed_number_is_noticed_when_asked(kept):
    """With `verify` every array is compared with its SHA-256; one bit is enough."""
    path = kept / "call-000.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    open_run(kept)
    assert "an array that has changed" in refused(kept, verify=True)


def test_links_and_pipes_are_not_followed(kept, tmp_path):
    """A file of a run is a plain file of its folder: a link out of it is not opened, and a pipe is not waited for."""
    path = kept / "call-000.safetensors"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(kept)
    path.unlink()
    os.mkfifo(path)
    assert "no plain file" in refused(kept)
    path.unlink()
    assert "is not there" in refused(kept)
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
    with pytest.raises(rg.Refused, match="too much beside the arrays"):
        dataclasses.replace(example(), facts={"long": "x" * 3000}).save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_reason_is_given_at_once(kept):
    """Faults in the files of two calls and in an axis are all told."""
    os.truncate(kept / "call-000.safetensors", 3)
    (kept / "call-001.safetensors").unlink()
    rewrite(kept, lambda found: deep(found, "axes", "keys", "special", to=[99]))
    said = refused(kept)
    assert "no safetensors file" in said and "is not there" in said and "special tokens" in said


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
    assert "is not there" in refused(tmp_path / "nowhere")
    (tmp_path / "file").write_text("words")
    assert "is a file" in refused(tmp_path / "file")
    assert "holds no run.json" in refused(tmp_path)


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


# ---- writing ---------------------------------------------------------------------------------------------------------


def not_saved(run, folder, **more) -> str:
    with pytest.raises(rg.Refused) as caught:
        save(run, folder, **more)
    return str(caught.value)


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_written_over_unasked(tmp_path):
    """A folder with other things, a file and a run are in the way; only a run goes, when asked, and nothing else beside
    it.
    """
    (tmp_path / "mine.txt").write_text("mine")
    assert "something is in the way" in not_saved(example(), tmp_path)
    assert "something is in the way" in not_saved(example(), tmp_path, overwrite=True)
    assert "something is in the way" in not_saved(example(), tmp_path / "mine.txt", overwrite=True)
    assert names(tmp_path) == ["mine.txt"]
    folder = tmp_path / "run"
    save(example(), folder)
    (folder / "notes.txt").write_text("mine, too")
    assert "a run is in the way" in not_saved(rich(), folder)
    assert len(open_run(folder).calls) == 1
    save(rich(), folder, overwrite=True)
    assert len(open_run(folder, verify=True).calls) == 2
    assert names(folder) == ["call-000.1.safetensors", "call-001.1.safetensors", "notes.txt", "run.json"]


def test_a_run_can_be_written_over_itself(tmp_path):
    """A run that is mapped from a folder is saved into that folder: what was opened before stays what it was."""
    first = save(example(), tmp_path / "run")
    exact = first.calls[0].weights()
    second = save(first, tmp_path / "run", overwrite=True)
    save(rich(), tmp_path / "run", overwrite=True)
    for run in (first, second):
        np.testing.assert_array_equal(run.calls[0].weights(), exact)


def broken_off(folder, **more) -> None:
    """A process that is killed while it writes its second call."""
    child = os.fork()
    if child == 0:
        with Writer(folder, **more) as writer:
            writer.add(example().calls[0])
            writer.add(example().calls[0])
            os._exit(0)
    os.waitpid(child, 0)


def test_a_run_that_broke_off_is_recognised(tmp_path):
    """Calls without a manifest are refused as such, are in the way, and go with the next run when asked."""
    folder = tmp_path / "run"
    broken_off(folder)
    assert "a run that broke off" in refused(folder)
    assert "a run that broke off is in the way" in not_saved(example(), folder)
    save(example(), folder, overwrite=True)
    assert names(folder) == ["call-000.safetensors", "run.json"]


def test_the_old_run_stays_until_the_new_one_is_whole(tmp_path):
    """Killed while it writes over a run, a process leaves the old run as it was; the next one clears up."""
    folder = tmp_path / "run"
    save(rich(), folder)
    broken_off(folder, overwrite=True)
    assert len(open_run(folder, verify=True).calls) == 2
    save(example(), folder, overwrite=True)
    assert len(open_run(folder, verify=True).calls) == 1
    assert len(names(folder)) == 2


def test_an_error_leaves_nothing_behind(tmp_path):
    """What was written before an error is removed: a new folder whole, an old run's folder to what it was."""
    for folder, more in ((tmp_path / "new", {}), (tmp_path / "old", {"overwrite": True})):
        if more:
            save(rich(), folder)
        before = names(folder) if more else []
        with pytest.raises(KeyError), Writer(folder, **more) as writer:
            writer.add(example().calls[0])
            (folder / container.DRAFT).write_text("half")
            raise KeyError
        assert (names(folder) if folder.exists() else []) == before


def test_limits_are_told_before_they_are_passed(tmp_path):
    """A run, or the call that would pass the limit, is refused with what it takes and what is allowed; nothing is
    left.
    """
    (call,) = example().calls
    for limit, calls in ((2000, 1), ("5kB", 2)):
        run = dataclasses.replace(example(), calls=(call,) * calls)
        said = not_saved(run, tmp_path / "run", limit=limit)
        assert f"at most {sizes.shown(sizes.size_of(limit, ''))}" in said and f"{calls} calls: " in said
    with (
        pytest.raises(rg.Refused, match=r"call 1, attention: [0-9.]+ kB, with [0-9.]+ kB before it"),
        Writer(tmp_path / "run", "15kB") as writer,
    ):
        writer.add(call)
        assert writer.written == (tmp_path / "run" / "call-000.safetensors").stat().st_size <= 15_000
        writer.add(call)
    assert names(tmp_path) == []


def test_two_cannot_write_at_once(tmp_path):
    """While a run is written into a folder, a second one is refused there."""
    with Writer(tmp_path / "run") as writer:
        with pytest.raises(rg.Refused, match="the folder is in use"), Writer(tmp_path / "run"):
            pass
        writer.add(example().calls[0])
        writer.finish("a", "b", example().axes)
    assert len(open_run(tmp_path / "run").calls) == 1


def test_what_cannot_be_kept_is_refused_before_it_is_written(tmp_path):
    """Notes that JSON cannot hold, arrays that do not fit each other and numbers of other kinds are named."""
    (call,) = example().calls
    for change, sentence in (
        ({"notes": {"a": [{1, 2}]}}, "notes.a.0.: set"),
        ({"notes": {1: 2}}, "notes: dict"),
        ({"notes": {"a": {"float": "nan"}}}, "notes.a: dict"),
        ({"v": np.ones((4, 9, 2))}, "K = 10, as k has it"),
        ({"x": np.ones((10, 2), complex)}, "x of complex128"),
        ({"lse": np.ones((4, 9))}, "Q = 10, as q has it"),
        ({"rows": {"mine": np.ones(3)}}, "rows.mine of .3."),
    ):
        run = dataclasses.replace(example(), calls=(dataclasses.replace(call, **change),))
        assert re.search(sentence, not_saved(run, tmp_path / "run")), change
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "given, bytes_", [("2GB", 2 * 10**9), ("1.5 MiB", 1536 * 1024), ("10", 10), (7, 7), ("3 kb", 3000), ("1TB", 10**12)]
)
def test_sizes_are_read(given, bytes_):
    """Powers of 1000 without an i, of 1024 with one."""
    assert sizes.size_of(given, "test") == bytes_


@pytest.mark.parametrize("given", ["", "GB", "-1", "0", "1e9", "2 G B", "nan", "1 PB", True, None, 2.5e-3, "9" * 400])
def test_what_is_no_size_is_refused(given):
    """The sentence shows how sizes are written."""
    with pytest.raises(rg.Refused, match="limit='2GB'"):
        sizes.size_of(given, "test")
