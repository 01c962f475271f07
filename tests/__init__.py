"""The tests as a package: every folder imports helpers as `from tests.support.engines import ...`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # of the repository
