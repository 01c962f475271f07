"""How runs are made: a model runs once under an observer, and every attention call becomes data.

doors                how `look` comes in
minilm               the default model, without torch
opening              a model and what reads its inputs, from a folder or the hub (quiet: without a word of transformers)
giving               what a model is given, and the axes that follow from it (spelling: tokens; pictures: pixels and a small PNG)
transformers_models  one pass, or a text that is written (steps: its passes, joined)
session              any torch module runs under the observer
observing            the observer: calls as they happen, cut to one batch entry (layout: where it is in the tensors)
rules                masks and scores of one entry, as short as they can be said (written: those of attention that is written out)
taken                one call as it was taken, and the Call that it becomes
keeping              what is kept, within the limit, in memory or on disk (axes: between which axes; facts: versions and hashes)
"""
