"""regard bench: regard beside whatever else is installed, checked first, then timed in turns on the same machine.

cases         what is computed, which pairs of rows and keys are allowed, and what became of an engine on it
engines       who computes it: one file each
accuracy      is the result right? float64, before any timing
interleave    how long does it take? short bursts, one engine after the other
system        compile time, import time, memory, each in a process of its own (fresh_process)
card          the check on a graphics card: right, planning, speed
whole_models  a whole model on regard and on SDPA: prefill, training, decoding
learning      a language model on a text, on regard and on SDPA
run           all of it in order; a Result for each case and engine
report        what is printed, and the JSON
"""
