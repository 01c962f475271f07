"""What people call: attention, its gradients and statistics, explain, merge, the key/value cache."""
