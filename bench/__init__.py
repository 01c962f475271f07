"""bench: compares regard with other installed libraries: checks results, then times interleaved runs.

cases         the benchmark cases, their inputs, and the results of engines
engines       the engines that are compared, one file each
accuracy      checks results against float64 before timing
interleave    times engines in short interleaved bursts; ratios of regard and SDPA
system        compile time, import time, memory, each in a fresh process (fresh_process)
shapes        shapes of models on regard and on SDPA, in each dtype
families      transformers models of many families at their real sizes, on regard and on SDPA
card          checks and benchmarks on a GPU: accuracy, planning, speed
whole_models  a transformers model on regard and on SDPA: prefill, training, decoding
learning      training a small language model on regard and on SDPA
run           runs everything in order; one Result per case and engine
report        the printed tables, and the JSON
"""
