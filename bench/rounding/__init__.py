"""How much of the bounds on rounding legitimate computations need."""
