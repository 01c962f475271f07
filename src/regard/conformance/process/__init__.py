"""The function that is judged, called in a process of its own, so that it may hang, crash, print or change anything."""
