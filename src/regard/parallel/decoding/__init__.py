"""Decoding over ranks: the keys and values of each layer are spread, and a step sends one partial result per subtree.

shares  which rank holds which positions
cache   the public cache of one layer
reader  attention over the positions of all ranks
spread  caches of a model, of which this rank holds its share
"""
