"""Row by row, with lists and the functions of math."""

import math


def merge(parts):
    outs, lses = [], []
    for row in range(len(parts[0][1])):
        present = [(out[row], lse[row]) for out, lse in parts if lse[row] > -math.inf]
        if not present:
            outs.append([0.0] * parts[0][0].shape[1])
            lses.append(-math.inf)
            continue
        top = max(lse for _, lse in present)
        denominators = [math.exp(lse - top) for _, lse in present]
        total = math.fsum(denominators)
        columns = zip(*(out for out, _ in present))
        outs.append([sum(d * x for d, x in zip(denominators, column)) / total for column in columns])
        lses.append(top + math.log(total))
    if not lses:
        return parts[0]
    return outs, lses
