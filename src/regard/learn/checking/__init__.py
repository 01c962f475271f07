"""Checks what learners write: in a process of its own, case by case, and names known mistakes."""
