"""The lens: attention as it was, at any length: recorded runs, their figures and tiles, and a page to look at them."""

from .axis import Axis, Segment
from .call import Call, Overview
from .heatmap import heatmap
from .look import look
from .page import page
from .run import Run, Step

__all__ = ["Axis", "Call", "Overview", "Run", "Segment", "Step", "heatmap", "look", "page"]
