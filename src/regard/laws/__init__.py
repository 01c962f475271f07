"""The laws of attention, and known mistakes: what a call has to return, within which rounding, and which mistake
explains another result.

arguments · forward · backward            the law in float64, as steps that a mistake replaces
rounding · bound                          how far a right result may be from it
call · expected                           a call and its answer under the conventions of a function
mistake · mistakes/ · catalog             what a mistake is and changes; the mistakes by subject; all in one tuple
observed · explain                        what was observed of a call, and which mistakes explain it
probes · matrix                           fixed calls that separate the mistakes, and which call rejects which mistake
"""
