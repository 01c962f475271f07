"""Runs on disk: folders that are memory-mapped when opened. Every file is validated before it is used.

folder      writing a run into a folder         reader      reading a run from a folder
manifest    run.json, field by field; the arrays of a call by name, and sizes in bytes
"""
