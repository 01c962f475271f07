"""A list."""


def alibi(heads):
    return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
