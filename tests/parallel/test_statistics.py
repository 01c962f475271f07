"""Statistics over simulated ranks equal those of one process: in all bits, what keys receive to a rounding."""

import numpy as np
import pytest

import regard as rg
import regard.parallel as rp
from tests.parallel.ranks import on_ranks
from tests.support.engines import normal
from tests.support.lanes import sweep
from tests.support.refusals import refusal

NAMES = ("lse", "entropy", "maximum", "distance", "range", "counts")


@pytest.mark.parametrize(
    ("ranks", "placement"), [(2, "excess"), (9, "striped"), *sweep((1, "contiguous"), (3, "zigzag"))]
)
def test_statistics_over_ranks(ranks, placement):
    """Every measure of rows, masses of sets that depend on heads, and sums over rows; the ninth rank has no tokens."""
    q, k = normal(4, 1000, 16), normal(2, 1000, 16, seed=1)
    mask = rg.causal() & rg.documents(lengths=[100, 700, 200])
    of = [*NAMES, rg.top(3), rg.mass(rg.key < 5 * rg.head, "low"), "received"]
    rules = {"of": of, "mask": mask, "score": rg.alibi(4), "sinks": np.zeros(4, np.float32)}
    expected = rg.attention_stats(q, k, **rules)
    place = rp.place(1000, ranks=ranks, mask=mask, heads=4, key_heads=2, among=placement)

    def work(transport):
        mine = [place.shard(each, axis=1, rank=transport.rank) for each in (q, k)]
        return rp.attention_stats(*mine, place=place, group=transport, **rules)

    def parts(found):
        """(name, array) of everything in a result."""
        pairs = [(name, found[name]) for name in found]
        return [(name, part) for name, each in pairs for part in (each if isinstance(each, tuple) else [each])]

    for rank, found in enumerate(on_ranks(ranks, work)):
        for (name, one), (other, whole) in zip(parts(found), parts(expected), strict=True):
            wanted = whole[:, place.positions(rank)]
            assert name == other and one.dtype == wanted.dtype
            np.testing.assert_allclose(one, wanted, rtol=1e-6 if name == "received" else 0, err_msg=name)


def test_maps_are_refused():
    """A map would have to be drawn by several ranks together."""
    place, q = rp.place(300, ranks=2), np.zeros((1, 300, 8), np.float32)

    def work(transport):
        mine = place.shard(q, axis=1, rank=transport.rank)
        return refusal(lambda: rp.attention_stats(mine, mine, of=rg.pooled(2, 2), place=place, group=transport))

    assert all("maps are not drawn over several ranks" in each for each in on_ranks(2, work))
