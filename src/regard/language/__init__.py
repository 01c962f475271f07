"""The language of attention: masks and scores as expressions, and the checked arguments of a call.

expr        Const · Var · Read · Op: masks and scores are expressions of these four; tree: what they are built on
operators   the table of operators; functions build expressions; spellings: names of NumPy and torch,
            those that make one number of a vector included
analysis    value, bounds over a tile (intervals) and derivative of an expression
masks       causal, window, documents, …; scores: softcap, ALiBi, …; callables: rules written for other libraries;
            selected_keys: the numbers of the keys of each row; added_masks: which numbers that other libraries add to
            scores mask a key
problem     the checked arguments of a call (checks); measures: statistics of its weights; dropout: the dropped weights
"""

from . import spellings  # register the names of NumPy and torch

__all__ = ["spellings"]
