"""What every package of regard may use.

errors           refusals: what was given, what was expected, how to fix it
arrays           reads arrays of NumPy and torch; dtypes: the floating-point dtypes that attention supports
caching          results cached between calls, and locks that are free in a forked child
call_hooks       observers of attention calls, such as profilers
module_settings  the attention settings of a module of torch or transformers
default_model    where the default model of `regard look` is
files            arrays in safetensors files, validated JSON, and what a command writes where its user says
web              what self-contained web pages share: templates, data, policy
public           the types in public signatures, and the package that public classes report as their module
"""
