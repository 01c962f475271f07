"""Runs on disk: folders that are memory-mapped when opened. Every file is validated before it is used.

folder      writing a run into a folder         manifest    run.json, field by field
arrays      the arrays of a call by name        rules_json  expressions as JSON
reader      reading a run from a folder         byte_sizes  parsing and formatting sizes
"""
