"""Every check of what a call is given: its arrays, and its other arguments."""
