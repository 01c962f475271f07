"""Saved caches: what is loaded holds the same bits and goes on alike; any other file is refused."""

import copy
import functools
import itertools
import json
import os

import numpy as np
import pytest

import regard as rg
from regard import Refused
from regard.common.files.tensors import read, write
from tests.api.caches import D, E, G, H, kv
from tests.api.test_kv_cache_interrupts import KINDS, lived, operations, same, seen
from tests.support.engines import normal
from tests.support.interrupts import ends_before


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_cache_is_the_saved_one(kind, tmp_path):
    """Lengths, rows, scales and attention are bit-identical, and so is everything after any further operation."""
    path = tmp_path / "cache.safetensors"
    for seed in range(6):
        random = np.random.default_rng([seed, *map(ord, kind)])
        cache = lived(kind, random)
        if seed % 2:
            cache.truncate(random.integers(cache.newest_start, cache.lengths + 1))
        cache.save(path)
        loaded = rg.KVCache.load(path)
        sizes = [cache.nbytes, loaded.nbytes]
        assert sizes[1] <= sizes[0] and (cache.pages is None or sizes[0] == sizes[1])
        assert (loaded.window, loaded.pages, loaded.storage) == (cache.window, cache.pages, cache.storage)
        same(seen(loaded)[2:], seen(cache)[2:])
        assert [place.name for place in tmp_path.iterdir()] == [path.name]
        for call in operations(cache, random).values():
            both = copy.deepcopy(cache), copy.deepcopy(loaded)
            for each in both:
                call(each)
                each.append(*kv(len(each), 2, 3))
            same(*(seen(each)[2:] for each in both))


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("storage", [None, "int8"])
def test_every_dtype_is_saved_bit_by_bit(name, storage, tmp_path):
    """NaN, infinities and every other number come back as they were, in every dtype and storage."""
    cache = rg.KVCache(G, D, E, dtype=name, storage=storage)
    k, v = kv(1, 200)
    k[0, 0, 3], v[0, 1, 7, 2], v[0, 0, 8, 1] = 0, np.inf, np.nan
    cache.append(k.astype(cache.dtype), v.astype(cache.dtype))
    cache.save(tmp_path / "cache")
    loaded = rg.KVCache.load(tmp_path / "cache")
    for kept, found in zip(cache._state.stores.arrays, loaded._state.stores.arrays, strict=True):
        assert kept.dtype == found.dtype and kept[:2].tobytes() == found.tobytes()


def test_a_stepped_selection_is_saved(tmp_path):
    """A cache whose last append was for some sequences still knows which ones."""
    cache = rg.KVCache(G, D, E, batch=3)
    cache.append(*kv(2, 3), sequences=[2, 0])
    cache.save(tmp_path / "cache")
    loaded, q = rg.KVCache.load(tmp_path / "cache"), normal(2, H, 3, D)
    same(*([*each.attend_with_lse(q, sequences=[0, 2])] for each in (cache, loaded)))
    with pytest.raises(Refused, match="the last append was for other sequences"):
        loaded.attend(normal(3, H, 3, D))


def test_what_a_file_says_is_only_what_the_cache_holds(tmp_path):
    """Rows of sequences that were dropped are not in the file."""
    cache = rg.KVCache(G, D, E, batch=2)
    cache.append(np.full((2, G, 100, D), 7, np.float32), np.full((2, G, 100, E), 7, np.float32))
    cache.drop(0)
    cache.truncate(1)
    cache.save(tmp_path / "cache")
    _, arrays = read(tmp_path / "cache", "test", "")
    assert [int((arrays[name] == 7).sum()) for name in "kv"] == [G * D, G * E]


def test_other_libraries_read_it(tmp_path):
    """A saved cache is a safetensors file."""
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    cache = lived("growing", np.random.default_rng(0))
    cache.save(tmp_path / "cache")
    found = library.load_file(tmp_path / "cache")
    assert found["lengths"].tolist() == cache.lengths.tolist()
    np.testing.assert_array_equal(found["k"], read(tmp_path / "cache", "test", "")[1]["k"])


def test_a_latent_cache_is_saved(tmp_path):
    """Its rows are stored once, and it is loaded by its own class."""
    pytest.importorskip("torch")
    from regard.torch import LatentCache

    for storage in (None, "int8"):
        cache = LatentCache(6, 2, batch=2, window=100, storage=storage)
        rows = normal(2, 1, 150, 8)
        cache.append(rows, rows[..., :6])
        cache.save(tmp_path / "cache")
        loaded = LatentCache.load(tmp_path / "cache")
        assert isinstance(loaded, LatentCache) and repr(loaded) == repr(cache)
        q = normal(2, 3, 150, 8)
        same(*([each.keys(1), each.values(0), each.attend(q, mask=rg.causal())] for each in (cache, loaded)))
        with pytest.raises(Refused) as caught:
            rg.KVCache.load(tmp_path / "cache")
        assert (
            str(caught.value)
            == f"""\
KVCache.load: another kind of cache
  given     {tmp_path}/cache: LatentCache
  expected  KVCache
  fix       load it with LatentCache.load"""
        )


# ---- files that are not saved caches ---------------------------------------------------------------------------------


def refused(path) -> bool:
    """Whether the file is refused, with reasons that have three parts."""
    try:
        rg.KVCache.load(path)
    except Refused as error:
        assert error.where in ("KVCache.load", "KVCache")
        assert error.reasons and all(each.given and each.expected and each.fix for each in error.reasons)
        return True
    return False


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
    """Nothing, a folder, a link, text, an array, a pickle and another safetensors file."""
    path = tmp_path / "cache"
    assert refused(path) and refused(tmp_path)
    lived("growing", np.random.default_rng(0)).save(tmp_path / "real")
    os.symlink(tmp_path / "real", path)
    assert refused(path)
    path.unlink()
    for raw in (b"", b"{}", b"a text that is long enough to have a length in front", b"\x80\x04]."):
        path.write_bytes(raw)
        assert refused(path)
    np.savez(path.with_suffix(".npz"), k=np.zeros(3))
    assert refused(path.with_suffix(".npz"))
    path.unlink()
    write(path, {"k": np.zeros(3)})
    assert refused(path)
    path.unlink()
    write(path, {"k": np.zeros(3)}, {"format": "another", "version": "1"})
    assert refused(path)
    path.unlink()


LIES = {
    "a page outside": lambda arrays, described: arrays["table"].__setitem__((0, -1), 10_000),
    "a negative page": lambda arrays, described: arrays["table"].__setitem__((0, -1), -1),
    "a page that nobody uses": lambda arrays, described: arrays["table"].fill(0),
    "too long": lambda arrays, described: arrays["lengths"].__setitem__(0, 100_000),
    "far too long": lambda arrays, described: arrays["lengths"].__setitem__(0, 2**62),
    "a negative length": lambda arrays, described: arrays["lengths"].fill(-1),
    "released": lambda arrays, described: arrays["first"].fill(1),
    "not yet": lambda arrays, described: arrays["start"].fill(5000),
    "before": lambda arrays, described: arrays["start"].fill(-1),
    "no keys": lambda arrays, described: arrays.pop("k"),
    "no lengths": lambda arrays, described: arrays.pop("lengths"),
    "a number for lengths": lambda arrays, described: arrays.update(lengths=np.zeros((), np.int64)),
    "flat": lambda arrays, described: arrays.update(k=arrays["k"].reshape(-1)),
    "another dtype": lambda arrays, described: arrays.update(k=arrays["k"].astype(np.float16)),
    "more": lambda arrays, described: arrays.update(extra=np.zeros(3)),
    "no heads": lambda arrays, described: described.update(heads=0),
    "other heads": lambda arrays, described: described.update(heads=1),
    "a deep head": lambda arrays, described: described.update(depth=2**61),
    "a text": lambda arrays, described: described.update(depth="8"),
    "a dtype": lambda arrays, described: described.update(dtype="int64"),
    "a storage": lambda arrays, described: described.update(storage="int8"),
    "no storage": lambda arrays, described: described.update(storage="zip"),
    "no window": lambda arrays, described: described.update(window=0),
    "a wide window": lambda arrays, described: described.update(window=2**80),
    "no pages": lambda arrays, described: described.update(pages=1),
    "many pages": lambda arrays, described: described.update(pages=2**60),
    "negative pages": lambda arrays, described: described.update(pages=-1),
    "a width": lambda arrays, described: described.update(width=-1),
    "unknown": lambda arrays, described: described.update(more=1),
    "missing": lambda arrays, described: described.pop("ragged"),
    "a list": lambda arrays, described: described.update(ragged=[1, 2]),
}


@pytest.mark.parametrize("name", LIES)
def test_numbers_that_lie_are_refused(name, tmp_path):
    """A file with the right checksum in which sizes, pages or positions do not fit together is refused."""
    cache = rg.KVCache(G, D, E, batch=2)
    cache.append(*kv(2, 300), rows=[300, 120])
    cache.save(tmp_path / "real")
    metadata, arrays = read(tmp_path / "real", "test", "")
    described = json.loads(metadata["cache"])
    write(tmp_path / "same", arrays, metadata | {"cache": json.dumps(described)})
    assert not refused(tmp_path / "same")
    LIES[name](arrays, described)
    write(tmp_path / "cache", arrays, metadata | {"cache": json.dumps(described)})
    assert refused(tmp_path / "cache")


def test_released_rows_are_not_read(tmp_path):
    """With a window, a file whose newest rows would attend to released keys is refused."""
    cache = rg.KVCache(G, D, E, window=10)
    for width in (300, 1):
        cache.append(*kv(1, width))
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
    for line in itertools.count(1):
        if ends_before(line, KeyboardInterrupt, functools.partial(new.save, path)):
            break
        if path.read_bytes() != before:
            same(seen(rg.KVCache.load(path))[2:], seen(new)[2:])
            old.save(path)
    same(seen(rg.KVCache.load(path))[2:], seen(new)[2:])


def test_what_cannot_be_written_is_refused(tmp_path):
    """A folder that does not exist, or stands in the place of the file; no draft remains."""
    cache = rg.KVCache(G, D, E)
    with pytest.raises(Refused) as caught:
        cache.save(tmp_path / "none" / "cache")
    assert (
        str(caught.value)
        == f"""\
KVCache.save: the file cannot be written
  given     {tmp_path}/none/cache: No such file or directory
  expected  a file in a folder that exists, with room on its disk
  fix       check the path, its permissions and the disk"""
    )
    (tmp_path / "folder").mkdir()
    with pytest.raises(Refused, match="Is a directory"):
        cache.save(tmp_path / "folder")
    assert [place.name for place in tmp_path.iterdir()] == ["folder"]
