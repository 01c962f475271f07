"""The lens: attention as it was, at any length.

axis · call · run            a recorded run as data
look · recording             models, modules and arrays become runs
storing                      runs in folders, mapped into memory
figures · tiles · reach      what is computed from q, k and lse when it is asked for (precision: in which numbers)
viewer                       the page of a run, as a file or served
heatmap · terminal           the same in pictures for papers, and in the terminal
"""

from .drawing.heatmap import heatmap
from .look import look
from .runs.axis import Axis, Segment
from .runs.call import Call, Overview
from .runs.run import Run, Step
from .viewer import page

__all__ = ["Axis", "Call", "Overview", "Run", "Segment", "Step", "heatmap", "look", "page"]
