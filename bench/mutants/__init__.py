"""What the suite notices: small changes of the source, and the tests that fail on each.

`python -m bench.mutants sample` draws the changes, `reach` runs the suite once to see which tests reach each of them,
`run` applies one after the other and runs those tests until one fails. The result is bench/mutants/result.tsv.
"""
