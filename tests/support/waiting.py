"""How long tests wait for another process."""

HANG = 600  # seconds without an end after which a process hangs, on a machine that does other things too
