"""The parts that the nodes of expressions are built from.

interning   one object for each structure, and its digest; tables: arrays as rules read them
pickling    trees as lists of nodes, however deep
syntax      Python's operators on expressions; printing: expressions as Python code
"""
