"""Checks that run a model several times with something changed, and compare the outputs."""
