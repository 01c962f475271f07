"""The known mistakes, by subject. Each file has one tuple of them."""
