"""Training: the loop, a run in a folder, checkpoints, the report and its curves."""

from .loop import Recipe, Step, Training, precision_of

__all__ = ["Recipe", "Step", "Training", "precision_of"]
