"""A right answer in another style: differences."""


def softmax(row):
    def weight(i):
        high = max(x.data for x in row)
        return (row[i] - high).exp() / sum((x - high).exp() for x in row)

    return list(map(weight, range(len(row))))
