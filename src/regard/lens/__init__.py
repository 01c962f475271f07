"""The lens: statistics of attention, and a page on which it can be seen and clicked."""

from .page import page
from .run import Layer, Run
from .stats import Statistics, statistics
from .survey import Survey, survey

__all__ = ["Layer", "Run", "Statistics", "Survey", "page", "statistics", "survey"]
