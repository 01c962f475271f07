"""Masks and scores of models as expressions, from the tensors that a model made."""
