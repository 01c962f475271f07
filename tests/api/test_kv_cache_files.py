"""Saved caches: what is loaded holds the same bits and goes on alike; any other file is refused."""

import copy
import json
import os

import numpy as np
import pytest

import regard as rg
from regard.common.files.tensors import read, write
from tests.api.caches import D, E, G, H, empty, filled, kv, kvq
from tests.api.test_kv_cache_interrupts import KINDS, lived, operations, same, seen
from tests.support.engines import normal, same_bits
from tests.support.interrupts import interrupted
from tests.support.lanes import by_name
from tests.support.refusals import refusal, refusing


def reloaded(cache, tmp_path):
    """A cache of the same class from the file of this one."""
    cache.save(tmp_path / "cache")
    return type(cache).load(tmp_path / "cache")


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_cache_is_the_saved_one(kind, tmp_path):
    """Lengths, rows, scales and attention are bit-identical, and so is everything after any further operation."""
    path = tmp_path / "cache.safetensors"
    for seed in range(4):
        random = np.random.default_rng([seed, *map(ord, kind)])
        cache = lived(kind, random)
        if seed % 2:
            cache.truncate(random.integers(cache.newest_start, cache.lengths + 1))
        cache.save(path)
        loaded = rg.KVCache.load(path)
        assert loaded.nbytes == cache.nbytes if cache.pages else loaded.nbytes <= cache.nbytes
        assert (loaded.window, loaded.pages, loaded.storage) == (cache.window, cache.pages, cache.storage)
        same(seen(loaded)[2:], seen(cache)[2:])
        for call in operations(cache, random).values():
            both = copy.deepcopy(cache), copy.deepcopy(loaded)
            for each in both:
                call(each)
                each.append(*kv(len(each), 2, 3))
            same(*(seen(each)[2:] for each in both))
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.spread
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("storage", [None, "int8"])
def test_every_dtype_is_saved_bit_by_bit(name, storage, tmp_path):
    """NaN, infinities and every other number come back as they were, in every dtype and storage, also from the cache
    itself, which attends as arrays of its rows do.
    """
    cache = empty(dtype=name, storage=storage)
    k, v, q = (each.astype(cache.dtype) for each in kvq(1, 200, 200))
    cache.append(k, v)
    assert storage or np.array_equal(cache.keys(0), k[0])
    same_bits(cache.attend(q)[0], rg.attention(q[0], cache.keys(0), cache.values(0)))
    cache.truncate(0)
    k[0, 0, 3], v[0, 1, 7, 2], v[0, 0, 8, 1] = 0, np.inf, np.nan
    cache.append(k, v)
    loaded = reloaded(cache, tmp_path)
    for kept, found in zip(cache._state.stores.arrays, loaded._state.stores.arrays, strict=True):
        assert kept.dtype == found.dtype and kept[:2].tobytes() == found.tobytes()


def test_a_stepped_selection_is_saved(tmp_path):
    """A cache whose last append was for some sequences still knows which ones."""
    cache, q = empty(batch=3), normal(3, H, 3, D)
    cache.append(*kv(2, 3), sequences=[2, 0])
    loaded = reloaded(cache, tmp_path)
    same_bits(*(each.attend(q[:2], sequences=[0, 2]) for each in (cache, loaded)))
    with refusing("the last append was for other sequences"):
        loaded.attend(q)


def test_what_a_file_says_is_only_what_the_cache_holds(tmp_path):
    """Rows of sequences that were dropped are not in the file."""
    cache = filled(*(np.full_like(each, 7) for each in kv(2, 100)))
    cache.drop(0)
    cache.truncate(1)
    cache.save(tmp_path / "cache")
    _, arrays = read(tmp_path / "cache", "test", "")
    assert [int((arrays[name] == 7).sum()) for name in "kv"] == [G * D, G * E]


def test_other_libraries_read_it(tmp_path):
    """A saved cache is a safetensors file."""
    from safetensors.numpy import load_file

    cache = lived("growing", np.random.default_rng(0))
    cache.save(tmp_path / "cache")
    found = load_file(tmp_path / "cache")
    assert found["lengths"].tolist() == cache.lengths.tolist()
    np.testing.assert_array_equal(found["k"], read(tmp_path / "cache", "test", "")[1]["k"])


@pytest.mark.parametrize("storage", [None, "int8"])
def test_a_latent_cache_is_saved(storage, tmp_path):
    """Its rows are stored once, and it is loaded by its own class."""
    from regard.torch import LatentCache

    cache, rows, q = LatentCache(6, 2, batch=2, window=100, storage=storage), normal(2, 1, 150, 8), normal(2, 3, 150, 8)
    cache.append(rows, rows[..., :6])
    loaded = reloaded(cache, tmp_path)
    assert isinstance(loaded, LatentCache) and repr(loaded) == repr(cache)
    same(*([each.keys(1), each.values(0), each.attend(q, mask=rg.causal())] for each in (cache, loaded)))
    words = r"""KVCache.load: another kind of cache
  given     .*/cache: LatentCache
  expected  KVCache
  fix       load it with LatentCache.load$"""
    with refusing(words):
        rg.KVCache.load(tmp_path / "cache")


# ---- files that are not saved caches ---------------------------------------------------------------------------------


def refused(path) -> bool:
    """Whether the file is refused."""
    return (refusal(rg.KVCache.load, path) or "").startswith("KVCache")


def test_damage_is_found(tmp_path):
    """A file that ends early, is too long, or in which any bit differs is refused, or loads as the same cache."""
    random, path = np.random.default_rng(0), tmp_path / "cache"
    cache = lived("int8, window", random)
    cache.save(path)
    raw, expected = path.read_bytes(), seen(cache)
    for end in {0, 1, 7, 8, 9, 500, len(raw) // 2, len(raw) - 1, *random.integers(0, len(raw), 20).tolist()}:
        path.write_bytes(raw[:end])
        assert refused(path), end
    path.write_bytes(raw + b"\0")
    assert refused(path)
    header = 8 + int.from_bytes(raw[:8], "little")
    for place in [*range(8), *range(8, header, 3), *random.integers(header, len(raw), 100).tolist()]:
        changed = bytearray(raw)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        if not refused(path):
            assert header - 64 < place < header, place  # spaces after the header
            same(seen(rg.KVCache.load(path))[2:], expected[2:])


def test_other_files_are_refused(tmp_path):
    """Nothing, a folder, a link, text, a pickle and another safetensors file."""
    path, link = tmp_path / "cache", tmp_path / "link"
    assert refused(path) and refused(tmp_path)
    lived("growing", np.random.default_rng(0)).save(tmp_path / "real")
    os.symlink(tmp_path / "real", link)
    assert refused(link)
    for raw in (b"", b"{}", b"a text that is long enough to have a length in front", b"\x80\x04]."):
        path.write_bytes(raw)
        assert refused(path)
    for metadata in ({}, {"format": "another", "version": "1"}):
        path.unlink()
        write(path, {"k": np.zeros(3)}, metadata)
        assert refused(path)


ENTRIES = [  # of the arrays of a file: which, where, and another number
    ("table", (0, -1), 10_000),
    ("table", (0, -1), -1),
    ("table", ..., 0),
    ("lengths", 0, 100_000),
    ("lengths", 0, 2**62),
    ("lengths", ..., -1),
    ("first", ..., 1),
    ("start", ..., 5000),
    ("start", ..., -1),
]
FIELDS = [  # of what a file says of the cache
    ("heads", 0),
    ("heads", 1),
    ("depth", 2**61),
    ("depth", "8"),
    ("dtype", "int64"),
    ("storage", "int8"),
    ("storage", "zip"),
    ("window", 0),
    ("window", 2**80),
    ("pages", 1),
    ("pages", 2**60),
    ("pages", -1),
    ("width", -1),
    ("unknown", 1),
    ("ragged", [1, 2]),
]


def entry(name, place, number):
    return lambda arrays, _: arrays[name].__setitem__(place, number)


def field(name, value):
    return lambda _, described: described.update({name: value})


LIES = {
    **{f"{name}[{place}] = {number}": entry(name, place, number) for name, place, number in ENTRIES},
    **{f"{name} = {value}": field(name, value) for name, value in FIELDS},
    "no keys": lambda arrays, _: arrays.pop("k"),
    "no lengths": lambda arrays, _: arrays.pop("lengths"),
    "no field": lambda _, described: described.pop("ragged"),
    "a number for lengths": lambda arrays, _: arrays.update(lengths=np.zeros((), np.int64)),
    "flat": lambda arrays, _: arrays.update(k=arrays["k"].reshape(-1)),
    "another dtype": lambda arrays, _: arrays.update(k=arrays["k"].astype(np.float16)),
    "more": lambda arrays, _: arrays.update(extra=np.zeros(3)),
}


@by_name("lie", LIES)
def test_numbers_that_lie_are_refused(lie, tmp_path):
    """A file with the right checksum in which sizes, pages or positions do not fit together is refused."""
    filled(*kv(2, 300), rows=[300, 120]).save(tmp_path / "real")
    metadata, arrays = read(tmp_path / "real", "test", "")
    described = json.loads(metadata["cache"])
    for name, change in (("same", lambda *_: None), ("lie", lie)):
        change(arrays, described)
        write(tmp_path / name, arrays, metadata | {"cache": json.dumps(described)})
    assert refused(tmp_path / "lie") and not refused(tmp_path / "same")


def test_released_rows_are_not_read(tmp_path):
    """With a window, a file whose newest rows would attend to released keys is refused."""
    cache = filled(*kv(1, 300), window=10)
    cache.append(*kv(1, 1))
    cache.save(tmp_path / "real")
    metadata, arrays = read(tmp_path / "real", "test", "")
    assert arrays["first"].tolist() == [2] and not refused(tmp_path / "real")
    arrays["start"][:] = 264
    write(tmp_path / "cache", arrays, metadata)
    assert refused(tmp_path / "cache")


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path):
    """Interrupted at any line, the file is the old one or the new one."""
    path = tmp_path / "cache"
    old, new = (lived("growing", np.random.default_rng(seed)) for seed in (1, 2))
    old.save(path)
    before = path.read_bytes()
    for _ in interrupted(KeyboardInterrupt, new.save, path):
        if path.read_bytes() != before:
            same(seen(rg.KVCache.load(path))[2:], seen(new)[2:])
            old.save(path)
    same(seen(rg.KVCache.load(path))[2:], seen(new)[2:])


def test_what_cannot_be_written_is_refused(tmp_path):
    """A folder that does not exist, or stands in the place of the file; no draft remains."""
    cache = empty()
    words = r"""KVCache.save: the file cannot be written
  given     .*/none/cache: No such file or directory
  expected  a file in a folder that exists, with room on its disk
  fix       check the path, its permissions and the disk$"""
    with refusing(words):
        cache.save(tmp_path / "none" / "cache")
    (tmp_path / "folder").mkdir()
    with refusing("Is a directory"):
        cache.save(tmp_path / "folder")
    assert [place.name for place in tmp_path.iterdir()] == ["folder"]
