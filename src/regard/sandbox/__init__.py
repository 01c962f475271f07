"""Code of others, run in a process of its own, so that it may hang, crash, print or change anything.

child       the process as its parent sees it: requests, time limits, printed text, its certain end
worker      the loop in the process: each request goes to a service; the memory of the process
messages    what the two send each other, and what code of others says, as one line
"""
