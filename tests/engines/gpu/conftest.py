"""What tests of graphics cards share."""

from tests.support.machine import one_thread  # noqa: F401, a fixture
