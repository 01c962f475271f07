"""Checks that read a recorded run: what each attention call was given, and what came out of it.

output            whether outputs follow from what the calls were given: expected_output, known_mistakes, diagnosis;
                  weighing: the softmax that they compare with
scales · masks    what the layers declare (layer_settings), against what their calls were given; arguments: the others
numbers           overflow, NaN, empty rows; weights: what weights may be; heads: which heads are like which
implementation    whether the implementation that was asked for is the one that ran
wording           how places are said
"""
