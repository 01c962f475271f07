"""Page: a model's cost as one self-contained web page, computed there for any number of tokens and sequences.

samples     what passes of a few sizes note, as flat tables of numbers
formula     a number as a function of tokens and sequences, found from samples and confirmed by another
terms       all of a model as such functions, as JSON
html        the page; web: its script and style
"""

from .html import page, written
from .terms import terms

__all__ = ["page", "terms", "written"]
