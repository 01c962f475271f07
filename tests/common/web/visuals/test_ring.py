"""The visual of a ring of processes: pairs, waiting and bytes are counted here position by position."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser


def positions(ranks, each, layout):
    """The positions of each process."""
    n = ranks * each
    if layout == "contiguous":
        return np.arange(n).reshape(ranks, each)
    if layout == "striped":
        return np.arange(n).reshape(each, ranks).T
    pieces = np.arange(n).reshape(2 * ranks, each // 2)
    return np.array([np.concatenate([pieces[rank], pieces[2 * ranks - 1 - rank]]) for rank in range(ranks)])


def work_of(held, causal):
    """(ranks, blocks): the pairs of the queries of a process with a block of keys."""
    allowed = held[:, :, None, None] >= held[None, None] if causal else np.ones((*held.shape, *held.shape), bool)
    return allowed.sum((1, 3))


@pytest.mark.spread
@pytest.mark.parametrize(("ranks", "each"), [(2, 2), (4, 16), (5, 6), (8, 4)])
@pytest.mark.parametrize("layout", ["contiguous", "zig-zag", "striped"])
@pytest.mark.parametrize("causal", [True, False])
def test_every_number_is_counted(shown, ranks, each, layout, causal):
    """In each step: who holds which block, and what it has computed of it; and what all of it costs."""
    view = shown("ring", ranks=ranks, tokens=ranks * each, width=10, bytes=2, layout=layout, causal=causal)
    work = work_of(positions(ranks, each, layout), causal)
    turn = [[(rank - step) % ranks for rank in range(ranks)] for step in range(ranks)]
    slowest = sum(max(work[rank, turn[step][rank]] for rank in range(ranks)) for step in range(ranks))
    sent = (ranks - 1) * each * 10 * 2
    done = np.zeros(ranks, int)
    for step in range(ranks):
        numbers = view.numbers()
        for rank in range(ranks):
            block = turn[step][rank]
            done[rank] += work[rank, block]
            assert numbers[f"has-{rank}"] == numbers[f"block-{rank}"] == block
            assert numbers[f"now-{rank}"] == work[rank, block]
            assert numbers[f"sofar-{rank}"] == done[rank]
            assert numbers[f"all-{rank}"] == work[rank].sum()
        view.tab.get_by_role("button", name="next step").click()
    assert numbers["tokens"] == ranks * each and numbers["total"] == work.sum() == done.sum()
    assert numbers["slowest"] == slowest and numbers["ideal"] == work.sum() / ranks
    assert numbers["used"] == pytest.approx(100 * work.sum() / (ranks * slowest))
    assert numbers["sent"] == sent and numbers["whole"] == ranks * sent and numbers["times"] == ranks - 1


def test_zig_zag_is_balanced_and_contiguous_is_not(shown):
    """With a causal mask; without one both are."""
    view = shown("ring", ranks=4, tokens=64)
    assert view.numbers()["used"] < 60
    view.tab.get_by_label("layout").select_option("zig-zag")
    assert view.numbers()["used"] == 100
    view.tab.get_by_label("causal mask").uncheck()
    view.tab.get_by_label("layout").select_option("contiguous")
    assert view.numbers()["used"] == 100


def test_who_waits_is_said(shown):
    """In the last step the first processes have nothing to do."""
    view = shown("ring", ranks=3, tokens=12)
    view.change(step=2)
    assert "P0, P1 have nothing to compute and wait." in view.tab.inner_text(".ring-said")
