"""The language of attention: what a call says, up to the checked Problem.

expr        Const · Var · Read · Op: masks and scores are expressions of these four; tree: what they are built on
operators   the table of operators; functions build expressions, spellings are NumPy's and torch's names for them
analysis    what is read off an expression: value, bounds over a tile (intervals), derivative
masks       causal, window, documents, …; scores: softcap, ALiBi, …; callables: rules written for other libraries;
            added_masks: which numbers that other libraries add to scores hide a key
problem     one call, checked (checks); measures: what can be asked of its weights; dropout: which weights are dropped
"""

from . import spellings  # which adds its names to what expressions answer to

__all__ = ["spellings"]
