"""A right answer in another style: loops."""


def softmax(row):
    top = row[0].data
    for x in row:
        if x.data > top:
            top = x.data
    powers = []
    total = 0.0
    for x in row:
        power = (x - top).exp()
        powers.append(power)
        total = total + power
    return [power / total for power in powers]
