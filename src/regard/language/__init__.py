"""The language of attention: what a call says, up to the checked Problem.

expr        Const · Var · Read · Op: masks and scores are expressions of these four
operators   the table of operators; functions and syntax write them in Python
analysis    what is read off an expression: value, bounds over a tile, derivative
masks       causal, window, documents, …; scores: softcap, ALiBi, …; callables: rules written for other libraries
added_masks   which numbers that other libraries add to scores hide a key
problem     one call, checked; measures: what can be asked of its weights
"""
