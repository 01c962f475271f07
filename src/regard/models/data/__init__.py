"""Loading of text data. Start with text.py and vocabulary.py; only batches requires torch.

text        UTF-8 text from files, folders and patterns, and the held-out split
tables      tables of texts and labels: CSV, TSV, JSON lines
vocabulary  conversion between text and tokens: bytes or byte pair encoding (BPE)
batches     training windows of a token sequence, and the batch of each step
"""
