"""Masks and scores of models as expressions, from the tensors that a model made.

one_entry    the rules of one batch entry, as short as they can be said
handwritten  those of attention that a model writes out as operations
"""
