"""The conventions of a function: how a function is called, which conventions it declares, and how its results are
read."""
