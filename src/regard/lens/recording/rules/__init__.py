"""Masks and scores of models as expressions, read from the tensors of a forward pass.

one_entry    the rules of one batch entry, in their shortest form
handwritten  the rules of attention that a model computes with separate operations
"""
