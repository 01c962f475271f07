"""How runs are made: a model runs once under an observer, and every attention call becomes data.

opening     a model and what reads its inputs, from a folder or the hub
spelling    tokens as they stand in the text
giving      what a model is given: texts, pictures, inputs as they are; and the axes that follow from it
pictures    pixels as patches on a small PNG
observing   the observer: calls as they happen, cut to one batch entry
rules       masks and scores for one batch entry, as short as they can be said
written     attention that a model writes out, in rules; kept as weights where it cannot be said
taken       one call as it was taken, and the Call that it becomes
steps       the calls of a generated text, joined
facts       versions, the hash of the weights, sizes
"""
