"""The teacher's side of the course: the grades of learners' folders, as tables, JSON and CSV."""
