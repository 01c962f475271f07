"""Keras computes float64 arrays in float32, on torch and on JAX."""

import os
import subprocess
import sys

code = """import keras, numpy as np
x = np.full((1, 2, 1, 2), 1 / 3)
print(keras.backend.backend(), np.array(keras.ops.dot_product_attention(x, x, x)).dtype)"""
for backend in ("torch", "jax"):
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"KERAS_BACKEND": backend}, capture_output=True, text=True
    )
    print(run.stdout.splitlines()[-1])
    assert run.stdout.splitlines()[-1] == f"{backend} float32"
