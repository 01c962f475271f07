"""What kernels are put together from: tiles, products, the streaming softmax, rules, dropout."""
