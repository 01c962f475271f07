"""Loading of text data. Start with vocabulary.py; only batches requires torch.

tables      tables of texts and labels: CSV, TSV, JSON lines
vocabulary  conversion between text and tokens: bytes or byte pair encoding (BPE)
batches     UTF-8 text from files, folders and patterns, the held-out split, and the training windows of each step
"""
