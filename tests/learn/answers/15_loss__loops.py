"""Token by token, with the math module."""

import math


def loss(logits, tokens, padding):
    total, count = 0.0, 0
    for text, words in zip(logits, tokens):
        for row in range(len(words) - 1):
            target = int(words[row + 1])
            if target == padding:
                continue
            largest = max(text[row])
            total += largest + math.log(sum(math.exp(each - largest) for each in text[row])) - text[row][target]
            count += 1
    return total / count if count else 0
