"""The measurements of conventions: small calls whose results say how the function counts, aligns, shares and
returns."""
