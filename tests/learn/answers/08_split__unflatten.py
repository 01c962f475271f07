"""unflatten and movedim."""


def split(tokens, number_of_heads):
    return tokens.unflatten(-1, (number_of_heads, tokens.shape[-1] // number_of_heads)).movedim(2, 1)
