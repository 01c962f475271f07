"""Counting: a pass of a model without data, and the sums of what it did, by formula and by count."""
