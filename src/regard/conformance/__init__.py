"""Conformance: which laws of attention a function keeps, and which it breaks, with the smallest counterexample."""
