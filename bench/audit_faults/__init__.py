"""How many faults `audit` finds that are planted into models, and whether it names them."""
