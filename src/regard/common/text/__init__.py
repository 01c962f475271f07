"""Text for people: cut between characters, numbers with their nouns, signs of any terminal, unknown arguments."""
