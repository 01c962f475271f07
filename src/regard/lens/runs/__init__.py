"""A recorded run as data: its calls, axes and steps, and what is computed from them when it is asked for."""
