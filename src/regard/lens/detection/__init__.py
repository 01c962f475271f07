"""Head detectors over many texts: what every head does on average, and in which texts it does it most.

detect       `detect_heads`: runs a model on the given texts, one after another, and collects the figures of all heads
head_scores  the result: mean and standard deviation for every head and detector
"""
