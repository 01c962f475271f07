"""What every room may use.

errors      how a refusal is worded: what was given, what was expected, how to fix it
arrays      how an array is read, of NumPy or torch
dtypes      the floating-point numbers that attention takes, one row each
memo        results kept from call to call; locks: locks that a forked child finds free
call_hooks  who observes attention calls, such as profilers
"""
