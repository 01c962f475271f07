"""The cases of each level, generated from seeds: those that are compared with the law, and those of behavior."""
