"""The catalog of known mistakes, and the diagnosis that names them.

mistake · entries/ · catalog    what a mistake is; the mistakes by subject; all of them in one tuple
trial · diagnosis               whether mistakes give the answers of a function, and which ones explain them
probes · matrix                 fixed calls that separate the mistakes, and which call rejects which mistake
"""
