"""OpenVINO lets a NaN in a masked key or value through."""

import numpy as np
import openvino
from openvino import opset13 as op

x, mask = np.ones((1, 1, 3, 4), np.float32), np.array([[True, True, False]] * 3)  # no row attends to key 2
bad = x.copy()
bad[0, 0, 2] = np.nan
inputs = [op.parameter(array.shape, array.dtype) for array in (x, x, x, mask)]
built = openvino.Model([op.scaled_dot_product_attention(*inputs)], inputs)
compiled = openvino.Core().compile_model(built, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
key, value = (compiled([x, k, v, mask])[0].copy() for k, v in ((bad, x), (x, bad)))
print(key[0, 0, :, 0], value[0, 0, :, 0])
assert np.isnan(key).all() and np.isnan(value).all()
