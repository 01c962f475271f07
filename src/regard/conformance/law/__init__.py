"""The law that judges: attention in float64 as a few replaceable steps, a second derivation, and a bound on
rounding."""
