"""A rule as NumPy computes it in the dtype of sums: what the usual computation makes of it."""

import numpy as np

from regard.language.analysis import clamped, deciding
from regard.language.expr import Expr, fold
from regard.language.operators import OPERATORS


def in_numpy(rule: Expr, values: dict, real) -> np.ndarray:
    """The rule as NumPy computes it in the dtype of sums, and parts that decide in float64."""
    exact = deciding(rule)

    def kept(node, found):
        found = np.asarray(found)
        return found.astype(np.float64 if id(node) in exact else real) if node.kind == "float" else found

    def read(node, *index):
        return kept(node, node.table.array[clamped(node.table, index)])

    def op(node, *args):
        if node.kind == "float" and id(node) not in exact:
            args = [arg.astype(real) if arg.dtype != np.bool_ else arg for arg in args]
        return kept(node, OPERATORS[node.name].value(*args))

    with np.errstate(all="ignore"):
        return fold(rule, lambda node: kept(node, node.value), lambda node: kept(node, values[node.name]), read, op)
