"""Drawings of a run outside the page: figures with matplotlib, and the terminal."""
