"""Shows what formulas for causal attention give where there are more keys than queries, as after a cached prefix."""

from shown import pairs, shown

import regard as rg
from regard.ledger.counting.pairs import pairs as counted

ROWS, KEYS, D, E = 4, 10, 8, 16  # the last four of ten tokens
more = KEYS - ROWS
triangle = ROWS * ROWS // 2  # "half the square"
brute = pairs(ROWS, KEYS, lambda query, key: key <= query + more)
regard = counted(rg.causal(), 1, 1, ROWS, KEYS, start=more)
squared = 2 * D * (ROWS * more + triangle) + 2 * E * (more * more + triangle)
halved = 2 * (D + E) * (ROWS * more + triangle)
half = 2 * (D + E) * ROWS * KEYS // 2
first = 2 * (D + E) * pairs(ROWS, KEYS, lambda query, key: key <= query)
shown(
    "regard",
    {
        "the wrong side squared": squared,
        "rectangle and half a square": halved,
        "half of all pairs": half,
        "aligned at the first key": first,
        "regard": 2 * (D + E) * regard,
        "brute force": 2 * (D + E) * brute,
    },
    wrong=2 * (D + E) * brute not in (squared, halved, half, first),
    exact=regard == brute,
)
