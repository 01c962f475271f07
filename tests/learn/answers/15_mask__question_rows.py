"""The question as a block: its rows and its keys; and a dict of rules."""

import numpy as np

RULES = {
    "next": lambda i, j, given: j <= i,
    "gaps": lambda i, j, given: (i == i) & (j == j),
    "prefix": lambda i, j, given: (j <= i) | (given[i] & given[j]),
}


def mask(task, document, given):
    i, j = np.indices((len(document), len(document)))
    return RULES[task](i, j, given) & (document[i] == document[j])
