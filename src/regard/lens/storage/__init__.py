"""Runs on disk: a folder that is mapped into memory, every claim of a file checked before it is believed.

folder      the folder and its files            manifest    run.json, field by field
arrays      the arrays of a call by name        tensors     one safetensors file
reader      a folder becomes a run              rules_json  expressions as JSON
byte_sizes  sizes as people write them          strict_json JSON without surprises
"""
