"""The course: chapters that predict, run and grade. `regard learn` shows it; it lies in `chapters`, one file each."""
