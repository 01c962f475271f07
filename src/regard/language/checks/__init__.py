"""Checks of the arguments of a call: its arrays, and everything else."""
