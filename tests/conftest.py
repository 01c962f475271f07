"""What all tests share: how hypothesis draws, and that nothing is quietly left out where the tests must be whole."""

import os
import shutil

import pytest
from hypothesis import settings

from tests.support.browser import chromium, kept_open, opened  # noqa: F401, fixtures

CI = os.environ.get("CI", "").lower() not in ("", "0", "false")

# A first call compiles, so time says nothing; in CI a failure must be the same for everyone who looks at it.
settings.register_profile("regard", deadline=None, derandomize=CI, print_blob=True)
settings.load_profile("regard")


def pytest_configure(config):
    """In CI the page is driven in a real browser, or the run fails: .ci/run installs one."""
    if CI and not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        raise pytest.UsageError(
            "the tests of the page need Chromium, and CI must not leave them out: apt-get install chromium"
        )
