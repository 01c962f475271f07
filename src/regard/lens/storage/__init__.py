"""Storing: a recorded run in a folder that is mapped into memory, and every claim of a file checked before it is believed."""
