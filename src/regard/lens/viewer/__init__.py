"""The page of a run: one HTML file with embedded data, or the same page with data from a local server.

html · embed         the page, and its data as bytes; views: the sections of the page, and how to add one
server · routes      the local server, and what it answers
live                 new runs of a served page: other texts, changed rules
queries              what the page knows of a run and requests about it
matrices             the matrices of a layer
head_mean            means over heads
"""

from .html import page as page
