"""Text for people: cut between characters, and numbers with their nouns."""
