"""The course: chapters that predict, run and grade. `regard learn` shows it; it is in `chapters`, one file each."""
