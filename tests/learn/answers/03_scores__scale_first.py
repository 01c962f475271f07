"""A right answer in another style: scale first."""


def scores(q, k):
    depth = k.shape[-1]
    return (q * depth**-0.5) @ k.transpose()
