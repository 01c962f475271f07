"""Machine code: expressions and loops as LLVM IR for the vector units of this machine, compiled and cached on disk.

ir         IR written as nested Python       emit       expressions as IR, one entry per operator
special    exp2, log2, tanh …                formats    numbers in memory and in registers
arguments  the argument block of a call      target     instruction sets of the machine
build      IR -> callable machine code       disk       cache of machine code on disk
"""
