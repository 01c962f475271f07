"""A recorded run as data: its calls, axes and steps, and what is computed from them on request.

run · call · axis   what was recorded
projections         the matrices of an attention layer
figures             statistics of every row; row_figures: their names, and their means over a head
tiles               any part of a map at any scale; codes: a weight as a byte, or float64
mask_pairs          how many rows may attend to each key, how many keys each row, and which cells a mask allows
first_view          the head and row that are shown first
detectors           sets of keys that depend on the tokens: duplicates, induction, own measures
other_viewers       weights for BertViz and CircuitsVis
labels              tokens as visible text
"""
