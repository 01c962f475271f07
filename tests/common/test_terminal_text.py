"""`print` of a result on a terminal that lacks its signs: the same text, in signs that the terminal has."""

import io
import sys

import pytest

import regard as rg
import regard.parallel as rp
from regard.common.text.terminal_text import encodable
from tests.support.engines import normal


def printed(value, encoding):
    """What `print` writes to a standard output of this encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    before, sys.stdout = sys.stdout, stream
    try:
        print(value, flush=True)
    finally:
        sys.stdout = before
    return stream.buffer.getvalue().decode(encoding)


def results(seed):
    """Explanations, an audit and a placement."""
    mask = [rg.causal(), rg.window(9), rg.everything(), rg.causal() & (rg.key % 3 == 0)][seed]
    q, k = normal(2, 40 + seed, 8), normal(2, 90, 8)
    audit = rg.audit(rg.look(q, k=k, v=k, mask=mask, scale=9.0 * seed))
    place = rp.place(512, ranks=3, mask=rg.causal())
    return [rg.explain(q, k, k, mask=mask, score=rg.softcap(3.0)), audit, *audit.findings, place, rp.explain(place)]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
@pytest.mark.parametrize("seed", range(4))
def test_results_can_be_printed(encoding, seed):
    """Every line is there, and nothing is changed that the terminal can show."""
    for value in results(seed):
        shown = printed(value, encoding)

        assert shown.count("\n") == str(value).count("\n") + 1
        assert "?" not in shown.replace("?", "", str(value).count("?"))
        assert encoding != "utf-8" or shown == f"{value}\n"


def test_a_text_that_fits_is_unchanged():
    """Signs that an encoding has stay, one by one."""
    assert encodable("½ × 3 ≤ 4", "latin-1") == "½ × 3 <= 4"
