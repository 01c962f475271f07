"""Runs on disk: folders that are memory-mapped when opened. Every file is validated before it is used.

folder      writing a run into a folder         manifest    run.json, field by field
arrays      the arrays of a call by name        tensors     one safetensors file
reader      reading a run from a folder         rules_json  expressions as JSON
byte_sizes  parsing and formatting sizes        strict_json validated JSON
"""
