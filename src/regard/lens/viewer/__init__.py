"""The page of a run: one HTML file, or a server of one; the same script asks the same questions of both.

html · embed         the page, and the data that it carries; views: what stands on it, and where a new view is added
server · routes      the local server; timeouts: when a silent client is disconnected
queries              what the page asks, and the answers; row_walk: one row from x to the output
frames               arrays as bytes; notebook: the page inside a notebook
python_source        the Python that makes a run again
"""

from .html import json_for_html, page, policy

__all__ = ["json_for_html", "page", "policy"]
