"""Keras gives the mean of all values, forbidden ones included, in a fully masked row, on torch and on JAX."""

import os
import subprocess
import sys

code = """import keras, numpy as np
x, v, mask = np.zeros((1, 2, 1, 2), "float32"), np.eye(2, dtype="float32")[None, :, None], np.zeros((1, 1, 2, 2), bool)
print(keras.backend.backend(), np.array(keras.ops.dot_product_attention(x, x, v, mask=mask))[0, :, 0].tolist())"""
for backend in ("torch", "jax"):
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"KERAS_BACKEND": backend}, capture_output=True, text=True
    )
    print(run.stdout.splitlines()[-1])
    assert run.stdout.splitlines()[-1] == f"{backend} [[0.5, 0.5], [0.5, 0.5]]"
