"""The colors of weights on a page."""

import numpy as np

from regard.lens.heatmap import ramp


def logarithmic(p):
    """The place of a weight on the logarithmic scale, from 0 to 1."""
    return 1 + np.log10(p) / 6


def distance(pixel, place, name="light", slack=2):
    """How far a pixel is from the color at a place of a ramp, or from those some steps beside it."""
    at = round(255 * min(1, max(0, place)))
    steps = ramp(name).astype(int)[max(0, at - slack) : at + slack + 1]
    return np.abs(steps - pixel[:3]).sum(-1).min()


def tint(view, name):
    """A color of the page, by its name."""
    return view.tab.evaluate("(name) => css(name).match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16))", name)
