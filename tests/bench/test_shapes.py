"""`python -m bench --cases shapes`: its masks, its table, and that wrong results are not timed."""

import io

import pytest

torch = pytest.importorskip("torch")

from rich.console import Console  # noqa: E402

from bench import report, shapes  # noqa: E402
from bench.interleave import Pace  # noqa: E402

BRIEF = Pace(rounds=1, burst=0.001, pause=0.0)


@pytest.mark.parametrize("shape", shapes.SHAPES, ids=str)
def test_no_row_is_without_keys(shape):
    """SDPA gives NaN for such a row; every mask broadcasts to (B, H, Q, K)."""
    assert not (shape.causal and shape.mask)
    if shape.mask:
        mask = shapes.MASKS[shape.mask](shape)
        allowed = mask if mask.dtype == torch.bool else mask > -torch.inf
        assert torch.broadcast_shapes(mask.shape, (shape.B, shape.H, shape.Q, shape.K))[-1] == shape.K
        assert allowed.any(-1).all()


def test_shapes_are_measured_and_the_lowest_ratio_is_first():
    """Each dtype and task; a line for each, and a mean."""
    some = shapes.Shape("few rows", 2, 7, 7, causal=True), shapes.Shape("windows", 2, 9, 9, D=8, mask="head floats")
    found = shapes.measure(lambda _: None, BRIEF, some)
    ratios = [each.ratio for each in found]
    assert len(found) == 2 * len(shapes.DTYPES) * 2 and ratios == sorted(ratios)

    console = Console(width=200, record=True, file=io.StringIO())
    console.print(report.ratios_table("shapes", found))
    text = console.export_text()
    assert "few rows: 2 heads, 7 × 7, depth 64, causal" in text and text.count("of 2 below 1") == 6


def test_a_wrong_result_ends_the_run(monkeypatch):
    """It is not timed."""
    monkeypatch.setattr("regard.api.attention.attention", lambda q, k, v, **rules: v.mean(-2, keepdim=True) + 0 * q)
    with pytest.raises(AssertionError, match=r"one row: 2 heads, 3 × 9, depth 64, float32: the error is"):
        shapes.measure(lambda _: None, BRIEF, (shapes.Shape("one row", 2, 3, 9),))
