"""The laws of attention, and known mistakes: what a call has to return, within which rounding, and which mistake
explains another result.

arguments · forward · backward            the law in float64, as steps that a mistake replaces
bound                                     how far a right result may be from it: errors of rounding
call · expected                           a call and its answer under the conventions of a function
mistake · mistakes/                       what a mistake is and changes; the catalog, by subject and all in one tuple
observed · explain                        what was observed of a call, and which mistakes explain it
probes                                    fixed calls that separate the mistakes, and which call rejects which mistake
"""
