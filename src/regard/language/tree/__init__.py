"""The parts that the nodes of expressions are built from.

interning   one object for each structure, its digest, and its pickle, however deep; tables: arrays as rules read them
syntax      Python's operators on expressions; printing: expressions as Python code
"""
