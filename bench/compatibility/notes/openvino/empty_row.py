"""OpenVINO gives NaN in a fully masked row."""

import numpy as np
import openvino
from openvino import opset13 as op

arrays = [np.zeros((1, 1, 2, 2), np.float32)] * 2 + [np.eye(2, dtype=np.float32)[None, None]]
arrays.append(np.array([[False, False], [True, True]]))
inputs = [op.parameter(array.shape, array.dtype) for array in arrays]
built = openvino.Model([op.scaled_dot_product_attention(*inputs)], inputs)
out = openvino.Core().compile_model(built, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(arrays)[0][0, 0]
print(out)
assert np.isnan(out[0]).all() and (out[1] == 0.5).all()
