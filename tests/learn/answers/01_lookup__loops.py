"""Plain Python: loops over lists, math.exp."""

import math


def lookup(query, keys, values, sharpness):
    scores = []
    for key in keys:
        score = 0.0
        for a, b in zip(query, key):
            score += a * b
        scores.append(sharpness * score)
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    return [sum(w * row[column] for w, row in zip(weights, values)) / total for column in range(len(values[0]))]
