"""Models that `regard train` and `regard classify` wrote, recorded with a text or with their own continuation.

model      a trained model that stays open: from a text to its run
default    the text of a model for which none is given
generation greedy generation, one forward pass for each token
tokens     the tokens of a model as they appear in the text
"""

from .model import TrainedModel, is_trained, trained_facts

__all__ = ["TrainedModel", "is_trained", "trained_facts"]
