"""The known mistakes, by subject. The files have tuples of them, whose entries say in order: the name, what is
computed, the likely cause, the fix, and the change of the law.
"""
