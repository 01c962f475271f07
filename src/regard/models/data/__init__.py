"""A user's own data, on its way to a model. Begin with text.py and vocabulary.py; nothing here needs torch but batches.

text        texts in UTF-8 files, folders and patterns, and a part of them held out
tables      tables of texts and labels: CSV, TSV, JSON lines
vocabulary  text as tokens and back: bytes, or pieces that the text repeats (bpe)
batches     windows of a long row of tokens, and the batches of each step
"""
