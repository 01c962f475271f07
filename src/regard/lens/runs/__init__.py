"""A recorded run as data: its calls, axes and steps, and what is computed from them on request.

run · call · axis   what was recorded
projections         the matrices of an attention layer
figures             statistics of every row
tiles               any part of a map at any scale; codes: a weight as a byte, or float64
first_view          the head and row that are shown first
detectors           the figures by name, their means over a head, and those of sets of keys that depend on the tokens
labels              tokens as visible text
"""
