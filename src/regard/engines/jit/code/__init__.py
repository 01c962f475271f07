"""Machine code: expressions and loops as LLVM IR, for this machine's vector units, compiled and kept on disk.

ir         IR as indented Python             emit       expressions as IR, one row per operator
special    exp2, log2, tanh …                formats    numbers in memory and in registers
arguments  what a kernel is told per call    target     the machine's vector units
build      IR -> something to call           disk       machine code kept for the next process
"""
