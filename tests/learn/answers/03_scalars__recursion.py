"""A right answer in another style: recursion."""


def product(a, b):
    if not a:
        return 0.0
    return a[0] * b[0] + product(a[1:], b[1:])


def attention_scores(Q, K, D):
    if not Q:
        return []
    first = [product(Q[0], k) / D**0.5 for k in K]
    return [first, *attention_scores(Q[1:], K, D)]
