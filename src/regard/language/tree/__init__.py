"""What the nodes of the language are built on.

interning   one object for each structure, and its name; tables: arrays as rules read them
syntax      what Python's own operators mean on an expression; printing: an expression as Python
"""
