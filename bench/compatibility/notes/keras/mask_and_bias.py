"""Keras takes mask and bias together on JAX and refuses them on torch."""

import os
import subprocess
import sys

code = """import keras, numpy as np
x, mask = np.zeros((1, 2, 1, 2), "float32"), np.ones((1, 1, 2, 2), bool)
keras.ops.dot_product_attention(x, x, x, mask=mask, bias=mask.astype("float32"))"""
for backend in ("torch", "jax"):
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"KERAS_BACKEND": backend}, capture_output=True, text=True
    )
    print(backend, run.returncode, run.stderr.splitlines()[-1:])
    assert ("Only one of `bias` and `mask`" in run.stderr) == (backend == "torch")
