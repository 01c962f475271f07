"""The page of a run: one HTML file with embedded data, or the same page with data from a local server.

html · embed         the page, and its data as bytes; views: the sections of the page, and how to add one
server · routes      the local server, and what it answers
queries              the data that the page requests; row_walk: one row from x to the output
head_mean            means over heads
notebook             the page in a notebook
python_source        the Python code that reproduces a run
"""

from ...common.web.html_page import json_for_html
from .html import page, policy

__all__ = ["json_for_html", "page", "policy"]
