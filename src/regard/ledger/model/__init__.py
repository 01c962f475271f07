"""Models without data: how they are built, what they are given, how their weights are stored."""
