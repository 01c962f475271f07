"""Training. Begin with loop.py: a recipe, and the steps of the optimizer; everything else is around it.

loop            Recipe and Training: batches, gradients, learning rate, one step after the other
run             `regard train`: a language model on texts, in a folder, that can be stopped and taken up again
classification  `regard classify`: a table of texts and labels, split, learned and judged
checkpoint      models in files: weights, vocabulary and what they were made of, in one safetensors file
report          how well labels were found: accuracy, precision, recall, F1, confusions
curve           the loss over the steps, drawn with letters
loss_plot       the same as a picture
"""

from .loop import Recipe, Step, Training, precision_of

__all__ = ["Recipe", "Step", "Training", "precision_of"]
