"""`print` of a result on a terminal that lacks its signs: the same text, in signs that the terminal has."""

import io
import sys

import numpy as np
import pytest

import regard as rg
from regard.common.text.terminal_text import encodable


def printed(value, encoding: str) -> str:
    """What `print` writes to a standard output of this encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    before, sys.stdout = sys.stdout, stream
    try:
        print(value, flush=True)
    finally:
        sys.stdout = before
    return stream.buffer.getvalue().decode(encoding)


def results(seed: int):
    """Explanations, an audit and a placement of random calls."""
    import regard.parallel as rp

    draw = np.random.default_rng(seed)
    Q, K = map(int, draw.integers(1, 400, 2))
    q, k, v = (draw.standard_normal((2, rows, 8), dtype=np.float32) for rows in (Q, K, K))
    mask = [rg.causal(), rg.window(9), rg.everything(), rg.causal() & (rg.key % 3 == 0)][seed % 4]
    place = rp.place(512, ranks=3, mask=rg.causal())
    run = rg.look(q, k=k, v=v, mask=mask, scale=float(draw.random()) * 9)
    yield from (rg.explain(q, k, v, mask=mask, score=rg.softcap(3.0)), rg.audit(run), *rg.audit(run).findings)
    yield from (place, rp.explain(place))


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_results_can_be_printed(encoding):
    """Every line is there, and nothing is changed that the terminal can show."""
    for seed in range(4):
        for value in results(seed):
            shown = printed(value, encoding)

            assert shown.count("\n") == str(value).count("\n") + 1
            assert "?" not in shown.replace("?", "", str(value).count("?"))
            assert encoding != "utf-8" or shown == f"{value}\n"


def test_a_text_that_fits_is_unchanged():
    """Signs that an encoding has stay, one by one."""
    assert encodable("½ × 3 ≤ 4", "latin-1") == "½ × 3 <= 4"
