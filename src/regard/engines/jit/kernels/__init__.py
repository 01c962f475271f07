"""The kernels: loop nests in LLVM IR.

forward          attention                                backward         gradients of attention
statistics_rows  statistics per query row                 statistics_keys  statistics per key
merge            partial results                          score_sweep      base class of the statistics kernels
parts/           components of kernels                    backward_parts/  those of the backward kernel

backward_specification  what a backward kernel is compiled for, its arguments and its working memory
"""
