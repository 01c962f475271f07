"""The course in other forms: notebooks and scripts, written from the chapters."""
