"""What every room may use.

errors      how a refusal is worded: what was given, what was expected, how to fix it
arrays      how an array is read, of NumPy or torch
caching     results kept from call to call, and locks that a forked child finds free
call_hooks  who observes attention calls, such as profilers
default_model  where the model of `regard look` lies when none is named
"""
