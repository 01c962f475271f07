"""Checks that read a recorded run: the inputs, the arguments and the output of each attention call.

audited_run   a run with its calls and what their layers declare; the words of findings; which mistake of the catalog in
              regard.laws explains an output
arguments     what the layers declare against the arguments of their calls: scale, mask, groups, bias and others
sources       where q, k, v and the output of each call come from and go to; weights that no output depends on
projections   what is wrong with these: heads in another order, projections that are skipped, positions
outputs       whether outputs match what the recorded inputs give, whether recorded weights are a softmax, and which
              implementation computed them
numbers       overflow, NaN, fully masked rows; unusual heads
"""
