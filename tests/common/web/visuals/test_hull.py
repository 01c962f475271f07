"""The visual of a convex hull: its numbers are NumPy's, and it says rightly whether the output is inside."""

import numpy as np

VALUES = [[-3.0, -2.0], [3.0, -2.5], [2.5, 2.0], [-2.0, 3.0], [0.5, 0.5]]
DATA = {"values": VALUES, "scores": [0.0, 0.5, 2.5, 0.0, 0.5], "second": [2.5, 0.0, 0.0, 0.5, 0.0]}


def softmax(scores):
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def extends(values, out):
    """How far the output is beyond the values, in the direction in which it is farthest: at most 0 inside the hull."""
    turns = np.linspace(0, 2 * np.pi, 2001)
    directions = np.stack([np.cos(turns), np.sin(turns)])
    return ((out - values) @ directions).min(0).max()


def check(view, weights):
    """Fails unless every number follows from the values and weights -> whether the output is inside."""
    out = weights @ np.array(VALUES)
    view.near({"weight": weights, "out": out, "sum": weights.sum()}, abs=1e-12)
    assert [view.row(f"value-{at}", 2) for at in range(len(VALUES))] == VALUES
    inside = bool(extends(VALUES, out) < 1e-9)
    assert view.state("inside") == inside
    assert view.tab.inner_text(".hull-said").startswith("Inside" if inside else "Outside")
    return inside


def test_weights_of_a_softmax_stay_inside(shown):
    """Equal ones, one that is almost 1, and others."""
    view = shown("hull", **DATA)
    for scores in ([0.0] * 5, [8, -8, -8, -8, -8], [0.3, -1.2, 2.5, 4, 0]):
        view.change(scores=scores)
        assert check(view, softmax(scores)) and view.row("score", 5) == scores


def test_dropout_can_leave_it(shown):
    """Its factor makes the sum of what is left larger than 1; all may be dropped."""
    view = shown("hull", **DATA)
    for dropped, rate in (([True, *[False] * 4], 0.2), ([False] * 5, 0.5), ([True] * 5, 0.5)):
        view.change(mode="dropout", dropped=dropped, rate=rate)
        check(view, np.where(dropped, 0, softmax(DATA["scores"]) / (1 - rate)))


def test_a_difference_of_two_softmaxes_can_leave_it(shown):
    """Its sum is 1 − λ."""
    view = shown("hull", **DATA)
    for lam, inside in ((0.0, True), (0.8, False), (1.0, False)):
        view.change(**{"mode": "difference", "lambda": lam})
        assert check(view, softmax(DATA["scores"]) - lam * softmax(DATA["second"])) == inside


def test_a_hull_may_be_a_point_or_a_line(shown):
    """What is on it is inside; zero, which is left where all is dropped, is outside, unless it is on the line."""
    for values in ([[1.0, 1.0]] * 3, [[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]]):
        scores = [0.0, 1.0, 2.0]
        view = shown("hull", values=values, scores=scores)
        view.near({"out": softmax(scores) @ np.array(values)})
        assert view.state("inside")
        view.change(mode="dropout", dropped=[True] * 3)
        assert view.state("inside") == (values[0] == [0.0, 0.0])
