"""Table 1 of "Attention Is All You Need": what four kinds of layer cost, counted and shown by running them.

layers       the layers themselves
counting     operations, and the longest chain of products that wait for each other
reach        how many layers carry a signal from the first position to the last
rows         the table: counted, measured, and the formulas
crossover    the length from which attention costs more than its projections
timing       seconds of a call
output       rows of text, JSON
plot         the table over the length, as an image
"""
