"""The lens: attention as it was, at any length.

look        what people call: models, modules and arrays become runs
runs        a recorded run as data, and what is computed from it when it is asked for
recording   how a run is made while a model computes
storage     runs in folders, mapped into memory
viewer      the page of a run, as a file or served
drawing     the same in pictures for papers, and in the terminal
"""

from ..common.public import belong
from .drawing.heatmap import heatmap
from .look import look
from .runs.axis import Axis, Segment
from .runs.call import Call, Overview
from .runs.run import Run, Step
from .viewer import page
from .viewer.notebook import frame_of

__all__ = ["Axis", "Call", "Overview", "Run", "Segment", "Step", "heatmap", "look", "page"]

Run._repr_html_ = frame_of  # here, so that a run as data knows nothing of the page

belong(__name__)
