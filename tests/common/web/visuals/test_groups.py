"""The visual of groups: which key head a query head uses, and the bytes of each cache, as regard counts them."""

import numpy as np
import pytest

import regard as rg

LLAMA = {"heads": 32, "key_heads": 8, "depth": 128, "layers": 32, "tokens": 131_072, "bytes": 2, "rank": 512,
         "rope": 64}  # fmt: skip
DEEPSEEK = LLAMA | {"heads": 128, "layers": 60}
MODELS = {"Llama 3.1 8B": LLAMA, "DeepSeek-V2": DEEPSEEK}
SMALL = {"heads": 6, "key_heads": 3, "depth": 16, "layers": 2, "tokens": 512, "bytes": 4, "rank": 64, "rope": 16}


@pytest.fixture
def groups(shown):
    """Opens the visual, with the sizes of two models unless others are given."""
    return lambda **data: shown("groups", **({"models": MODELS} | data))


def test_every_byte_is_that_of_the_formula(groups):
    """Numbers and bytes of a token, and bytes of the whole context, for each kind of sharing."""
    view = groups()
    for sizes in (LLAMA, DEEPSEEK, SMALL | {"heads": 1, "key_heads": 1, "tokens": 128, "bytes": 1}):
        view.change(**sizes)
        numbers = view.numbers()
        kept = {"MHA": sizes["heads"], "GQA": sizes["key_heads"], "MQA": 1}
        count = {kind: 2 * heads * sizes["depth"] for kind, heads in kept.items()}
        for kind, each in (count | {"MLA": sizes["rank"] + sizes["rope"]}).items():
            of_a_token = each * sizes["layers"] * sizes["bytes"]
            found = [numbers[f"{kind}-{column}"] for column in ("numbers", "bytes", "total")]
            assert found == [each, of_a_token, of_a_token * sizes["tokens"]], kind


def test_the_query_heads_of_a_key_head_are_those_of_regard(groups):
    """In its number and in the drawing."""
    view = groups(models={"small": SMALL})
    for key_heads in (2, 6):
        k = np.zeros((1, key_heads, 1, 2))
        v = np.arange(key_heads, dtype=float).reshape(1, key_heads, 1, 1)  # each key head returns its own number
        for head, use in enumerate(rg.attention(np.zeros((1, 6, 1, 2)), k, v)[0, :, 0, 0]):
            view.change(kind="GQA", key_heads=key_heads, head=head)
            assert view.numbers()["key-head"] == use
            card = view.tab.locator(".groups-card", has=view.tab.locator(".groups-kept.groups-chosen"))
            assert card.locator(".groups-query.groups-chosen").inner_text() == str(head)


def test_the_bytes_of_a_token_are_those_that_a_cache_stores(groups):
    """For as many key heads as query heads, fewer, and one; and latent rows, of a page of 128."""
    view = groups(models={"small": SMALL})
    rows = np.zeros((1, 6, 5, 16), np.float32)
    for kind, heads in (("MHA", 6), ("GQA", 3), ("MQA", 1)):
        view.change(kind=kind)
        cache = rg.KVCache(heads, 16)
        cache.append(rows[:, :heads], rows[:, :heads])
        assert view.numbers()["bytes"] == SMALL["layers"] * (cache.keys(0).nbytes + cache.values(0).nbytes) / 5
    from regard.torch import layers

    view.change(**DEEPSEEK, kind="MLA")
    cache = layers.LatentCache(kv_rank=512, rope_dim=64, dtype="bfloat16", pages=1)
    assert view.numbers()["bytes"] == DEEPSEEK["layers"] * cache.nbytes / 128


def test_key_heads_divide_the_query_heads(groups):
    """If the query heads change, so that the groups no longer come out even, the nearest number that does is taken."""
    view = groups()
    for heads, key_heads in ((12, 6), (1, 1)):
        view.change(heads=heads)
        assert view.numbers()["GQA-numbers"] == 2 * key_heads * 128
