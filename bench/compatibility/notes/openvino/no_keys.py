"""OpenVINO returns what was in memory for 0 keys."""

import numpy as np
import openvino
from openvino import opset13 as op

found = 0
for size in range(8, 40):
    arrays = [np.ones((1, 1, size, size), np.float32)] + [np.ones((1, 1, 0, size), np.float32)] * 2
    inputs = [op.parameter(array.shape, array.dtype) for array in arrays]
    built = openvino.Model([op.scaled_dot_product_attention(*inputs)], inputs)
    compiled = openvino.Core().compile_model(built, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found += np.count_nonzero(compiled(arrays)[0])
print(found, "numbers are not 0")
assert found
