"""The visual of a ring of processes: pairs, waiting and bytes are counted here position by position."""

import numpy as np
import pytest


def positions(ranks, each, layout):
    """The positions of each process."""
    n = ranks * each
    if layout == "contiguous":
        return np.arange(n).reshape(ranks, each)
    if layout == "striped":
        return np.arange(n).reshape(each, ranks).T
    pieces = np.arange(n).reshape(2 * ranks, each // 2)
    return np.array([np.concatenate([pieces[rank], pieces[2 * ranks - 1 - rank]]) for rank in range(ranks)])


@pytest.mark.spread
@pytest.mark.parametrize(("ranks", "each"), [(2, 2), (4, 16), (5, 6)])
@pytest.mark.parametrize("layout", ["contiguous", "zig-zag", "striped"])
@pytest.mark.parametrize("causal", [True, False])
def test_every_number_is_counted(shown, ranks, each, layout, causal):
    """In each step: who holds which block, and what it has computed of it; and what all of it costs."""
    view = shown("ring", ranks=ranks, tokens=ranks * each, width=10, bytes=2, layout=layout, causal=causal)
    held, rank = positions(ranks, each, layout), np.arange(ranks)
    allowed = (held[:, :, None, None] >= held) | (not causal)
    work = allowed.sum((1, 3))  # of each process with each block of keys
    turn = (rank - rank[:, None]) % ranks  # by steps: whose block each process has
    now = work[rank, turn]
    for step in rank:
        parts = {"has": turn[step], "block": turn[step], "now": now[step], "sofar": now[: step + 1].sum(0)}
        for name, wanted in (parts | {"all": work.sum(1)}).items():
            assert view.row(name, ranks) == wanted.tolist(), (step, name)
        view.tab.get_by_role("button", name="next step").click()
    slowest, sent = now.max(1).sum(), (ranks - 1) * each * 10 * 2
    wanted = {"tokens": ranks * each, "total": work.sum(), "slowest": slowest, "ideal": work.sum() / ranks}
    wanted |= {"used": 100 * work.sum() / (ranks * slowest), "sent": sent, "whole": ranks * sent, "times": ranks - 1}
    view.near(wanted)


def test_who_waits_is_said(shown):
    """In the last step the first processes have nothing to do; without a mask, or in a zig-zag, none waits."""
    view = shown("ring", ranks=3, tokens=12)
    view.change(step=2)
    assert "P0, P1 have nothing to compute and wait." in view.tab.inner_text(".ring-said")
    view.tab.get_by_label("layout").select_option("zig-zag")
    assert view.numbers()["used"] == 100
    view.tab.get_by_label("layout").select_option("contiguous")
    view.tab.get_by_label("causal mask").uncheck()
    assert view.numbers()["used"] == 100
