"""Stand-ins: what runs in place of code that needs values, and makes results of the same shapes without them."""
