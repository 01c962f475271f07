"""Which heads a rank computes: every query head once, groups whole, and refusals with sizes that work."""

import pytest

import regard.parallel as rp
from tests.support.refusals import refusal

SIZES = [(R, G * group, G) for G in range(1, 8) for group in range(1, 5) for R in range(1, G * group + 1)]


def test_every_query_head_is_computed_once_with_its_key_head():
    """Over all ranks; a rank's own numbers of heads pair a query head with its key head as the whole layer does."""
    for ranks, heads, key_heads in SIZES:
        parts = [rp.heads(rank, ranks=ranks, heads=heads, key_heads=key_heads) for rank in range(ranks)]
        assert [head for part in parts for head in part.query] == list(range(heads))
        group = heads // key_heads
        for part in parts:
            assert len(part.query) % len(part.key) == 0
            own_group = len(part.query) // len(part.key)
            paired = [part.key[number // own_group] for number in range(len(part.query))]
            assert paired == [head // group for head in part.query]
            assert own_group == group or len(part.key) == 1
            assert part.sharers == tuple(other.rank for other in parts if other.key == part.key)
        sizes = [len(part.key) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_all_heads_are_key_heads_by_default():
    """key_heads=None is multi-head attention."""
    assert rp.heads(1, ranks=3, heads=7).key == range(3, 5)


@pytest.mark.parametrize(
    "given, problems",
    [
        ({"rank": 0, "ranks": 2, "heads": 10, "key_heads": 4}, ["key_heads=2, key_heads=5, heads=8, heads=12"]),
        ({"rank": 0, "ranks": 9, "heads": 8, "key_heads": 2}, ["at most 8 ranks", "ranks=8"]),
        ({"rank": 2, "ranks": 2, "heads": 2, "key_heads": 3}, ["key_heads=2", "0 to 1"]),
        ({"rank": 0, "ranks": 0, "heads": -1, "key_heads": 1}, ["ranks=0", "heads=-1"]),
        ({"rank": 0.5, "ranks": 2, "heads": 2}, ["rank is not an integer"]),
    ],
)
def test_refusals_name_the_nearest_sizes_that_work(given, problems):
    """Every problem is listed."""
    found = refusal(lambda: rp.heads(given.pop("rank"), **given))
    assert all(problem in found for problem in problems), found
