"""A user's own data: text, tables, a vocabulary, batches."""
