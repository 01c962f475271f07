"""The page of a run: one HTML file with embedded data, or the same page with data from a local server.

html · embed         the page with its views, and its data as bytes
server · routes      the local server, and what it answers, for heads and means of heads
live                 new runs of a served page: other texts, changed rules
queries              what the page knows of a run and requests about it, the matrices of a layer among it
"""

from .html import page as page
