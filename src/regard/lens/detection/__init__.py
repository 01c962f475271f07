"""Head detectors over many texts: what every head does on average, and in which texts it does it most.

detect       `detect_heads`: runs a model on one text after another
given_texts  the texts: strings, files, or pairs of a name and a text
collected    the figures of all heads, collected from one run after another
head_scores  the result: mean and standard deviation for every head and detector
running      mean, standard deviation and largest values of numbers that come one after another
"""
