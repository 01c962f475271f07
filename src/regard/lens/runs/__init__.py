"""A recorded run as data: its calls, axes and steps, and what is computed from them on request.

run · call · axis   what was recorded
figures             statistics of every row and head
tiles               any part of a map at any scale; codes: a weight as a byte; mask_reach: which cells a mask allows
first_view          the head and row that are shown first
labels · precision  tokens as visible text; whether a call needs float64
"""
