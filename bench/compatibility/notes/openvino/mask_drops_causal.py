"""OpenVINO ignores the mask where causal is set: of a mask that hides key 1, nothing is left."""

import numpy as np
import openvino
from openvino import opset13 as op

arrays = [np.zeros((1, 1, 3, 3), np.float32)] * 2 + [np.eye(3, dtype=np.float32)[None, None]]
arrays.append(np.array([[True, False, True]] * 3))
inputs = [op.parameter(array.shape, array.dtype) for array in arrays]
built = openvino.Model([op.scaled_dot_product_attention(*inputs, causal=True)], inputs)
weights = openvino.Core().compile_model(built, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(arrays)[0][0, 0]
print(weights)
assert weights[1, 1] == 0.5  # the documentation says: if causal is true, attention_mask is ignored
