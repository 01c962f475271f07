"""Recording: runs a model once under an observer and turns every attention call into data.

entry          entry points that `look` calls: any torch module, and a transformers model, which may generate
inputs         model inputs, pixel values of images, and the axes that follow from them; token_text: tokens as text
minilm         the default model, in NumPy, without torch
observer       records calls as they happen, for one batch entry, and where that entry is in the tensors
one_entry      masks and scores of that entry as expressions; handwritten: those of attention that a model writes out
products       the matrix products of the model, and which of them gave q, k, v and the output
passes         joins the calls of generation, one per step, into one call
keeper         completes calls with axes and figures, compares them with the output of the model, and stores them up to
               the limit

A recorded call is a `regard.lens.Call` from the start. To add a field to it, change these files in order:

1. runs/call            the field with a default (older runs do not have it), and its line in the docstring
2. where it is set      observer (and minilm) if the model provides it; figures if it is computed afterwards
3. storage              manifest.AXES for an array, manifest.FIELDS for plain JSON, which needs a new version of the
                        format. An entry of `notes` needs neither
4. recording/passes     only if it grows during generation
5. viewer/queries       only if the page shows it

The matrices of a layer (`runs/projections`) are found by the observer as well; they are not stored in folders.
"""
