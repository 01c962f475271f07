"""How runs are made: a model runs once under an observer, and every attention call becomes data.

entry          how `look` comes in
inputs         what a model is given, and the axes that follow from it; token_text: tokens as words; pictures: pixels
minilm         the default model, without torch
run_model      one pass of a transformers model, or a text that it writes
session        any torch module runs under the observer
observer       calls as they happen, cut to one batch entry; tensor_layout: where that entry is in the tensors
rules          masks and scores of that entry as expressions
recorded_call  one call as it was recorded, and the Call that it becomes
keeper         what is kept, within the limit, in memory or on disk; axes: between which; provenance: versions
"""
