"""Keras gives 0 on torch and NaN on JAX in a row that a bias of −∞ hides."""

import os
import subprocess
import sys

code = """import keras, numpy as np
x, v, bias = np.zeros((1, 2, 1, 2), "float32"), np.ones((1, 2, 1, 2), "float32"), np.zeros((1, 1, 2, 2), "float32")
bias[..., 0, :] = -np.inf
print(keras.backend.backend(), np.array(keras.ops.dot_product_attention(x, x, v, bias=bias))[0, 0, 0].tolist())"""
for backend, expected in (("torch", "torch [0.0, 0.0]"), ("jax", "jax [nan, nan]")):
    settings = os.environ | {"KERAS_BACKEND": backend}
    run = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True)
    print(run.stdout.splitlines()[-1])
    assert run.stdout.splitlines()[-1] == expected
