"""Checks that read a recorded run: the inputs, the arguments and the output of each attention call.

outputs           whether outputs match what the recorded inputs give, and which mistake of the catalog in regard.laws
                  explains them: observed_call; whether recorded weights are a softmax
arguments         what the layers declare (audited_run) against the arguments of their calls; masks: which keys
numbers           overflow, NaN, fully masked rows; heads: unusual heads
implementation    whether the configured attention implementation is the one that ran, and agrees with others
audited_run       a run with its calls and what their layers declare; the words of findings
"""
