"""Training. Start with loop.py: the recipe, and the loop over optimizer steps.

loop            Recipe, Training and Settings: batches, gradients, learning rate, optimizer steps; sizes of a model
run             `regard train`: trains a language model on texts, in a run folder that can be resumed; plots the loss
over_ranks      what several processes do together: agree, add gradients, and compute a part of a batch each
classification  `regard classify`: trains and evaluates a classifier on a table of texts and labels; its metrics
checkpoint      saves and loads models: weights, vocabulary and metadata in one safetensors file
"""

from .loop import Recipe, Step, Training, precision_of

__all__ = ["Recipe", "Step", "Training", "precision_of"]
