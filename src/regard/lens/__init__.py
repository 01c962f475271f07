"""The lens: statistics of attention, and a page on which it can be seen and clicked."""

from .page import page
from .run import Layer, Run
from .stats import Statistics, statistics

__all__ = ["Layer", "Run", "Statistics", "page", "statistics"]
