"""Checks that read a recorded run: the inputs, the arguments and the output of each attention call.

output            whether outputs match what the recorded inputs give, and which mistake of the catalog in regard.laws
                  explains them: observed_call
scales · masks    what the layers declare (audited_run) against the arguments of their calls; arguments: the others
numbers           overflow, NaN, fully masked rows; weights: whether weights are a softmax; heads: unusual heads
implementation    whether the configured attention implementation is the one that ran
audited_run       a run with its calls and what their layers declare; the words of findings
"""
