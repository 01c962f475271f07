"""Keras lets a NaN in a masked value through, on torch and on JAX; one in a masked key on torch only."""

import os
import subprocess
import sys

code = """import keras, numpy as np
x, bad, mask = np.ones((1, 2, 1, 2), "float32"), np.ones((1, 2, 1, 2), "float32"), np.array([[[[True, False]] * 2]])
bad[0, 1] = np.nan
found = [np.array(keras.ops.dot_product_attention(x, k, v, mask=mask)) for k, v in ((bad, x), (x, bad))]
print(keras.backend.backend(), *(bool(np.isnan(each).any()) for each in found))"""
for backend, expected in (("torch", "torch True True"), ("jax", "jax False True")):
    settings = os.environ | {"KERAS_BACKEND": backend}
    run = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True)
    print(run.stdout.splitlines()[-1])
    assert run.stdout.splitlines()[-1] == expected
