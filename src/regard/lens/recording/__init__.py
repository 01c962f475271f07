"""How runs are made: a model runs once under an observer, and every attention call becomes data.

entry          how `look` comes in
inputs         what a model is given, and the axes that follow from it; token_text: tokens as words; pictures: pixels
minilm         the default model, without torch
run_model      one pass of a transformers model, or a text that it writes
session        any torch module runs under the observer
observer       calls as they happen, cut to one batch entry; tensor_layout: where that entry is in the tensors
rules          masks and scores of that entry as expressions
recorded_call  a call before it is completed: placed between its axes, measured, compared with the model
passes         the calls of a text that is written token by token, joined into one
keeper         what is kept, within the limit, in memory or on disk; axes: between which; provenance: versions
from_arrays    runs without a model, from q and k or from weights

A recorded call is a `regard.lens.Call` from the start. A new field of it is added in this order:

1. runs/call            the field, and its line in the docstring; a default, since older runs do not have it
2. who fills it         observer (and minilm), where the model knows it; figures, where it is computed afterwards
3. storage              arrays.AXES, if it is an array; manifest.FIELDS, if it is plain JSON: a new version of the
                        format. What is an entry of `notes` needs neither
4. recording/passes     only if it grows with the text that a model writes
5. viewer/queries       only if the page shows it
"""
