"""The lens: records the attention of models, at any length, and shows it.

look        the entry point: records models, modules and arrays as runs
detection   head detectors over many texts
trained     models of `regard train` and `regard classify`
runs        a recorded run as data, and what is computed from it on request
recording   records a run while a model computes
storage     runs in folders, memory-mapped
viewer      the HTML page of a run, as a file or served
heatmap     figures with matplotlib, and the colors of maps; terminal: the summary of `regard look`
"""

from ..common.public import belong
from .detection import HeadScore, HeadScores, detect_heads
from .heatmap import heatmap
from .look import look
from .runs.axis import Axis, Segment
from .runs.call import Call, Overview
from .runs.detectors import token
from .runs.run import Run, Step
from .viewer import page
from .viewer.html import frame_of, frame_of_call

__all__ = [
    "Axis",
    "Call",
    "HeadScore",
    "HeadScores",
    "Overview",
    "Run",
    "Segment",
    "Step",
    "detect_heads",
    "heatmap",
    "look",
    "page",
    "token",
]

Run._repr_html_ = frame_of  # set here, so that `runs` does not import the viewer
Call._repr_html_ = frame_of_call

belong(__name__)
