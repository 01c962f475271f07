"""A run drawn outside the page: heatmaps for papers, pictures, the terminal."""
