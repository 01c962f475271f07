"""What the tests of this folder share: the same random numbers, and one thread of torch, so that times are of the work
and not of waiting for a core.
"""

from tests.support.machine import one_thread, seeded  # noqa: F401, fixtures
