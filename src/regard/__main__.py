"""`python -m regard`: the same as the `regard` command."""

from .cli import main

main()
