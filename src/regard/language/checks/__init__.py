"""Checks of the arguments of a call: its arrays, where it begins in a larger call, and everything else."""
