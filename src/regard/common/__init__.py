"""What every room may use.

errors           how a refusal is worded: what was given, what was expected, how to fix it
arrays           how an array is read, of NumPy or torch; dtypes: the floating-point numbers that attention takes
caching          results kept from call to call, and locks that a forked child finds free
call_hooks       who observes attention calls, such as profilers
module_settings  what a module of torch or transformers says of itself
default_model    where the model of `regard look` lies when none is named
public           public classes name the package that people import from
"""
