"""The cases of each level, generated from seeds."""
