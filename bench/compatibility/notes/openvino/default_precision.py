"""OpenVINO computes float32 models in bfloat16 on processors that have it, unless INFERENCE_PRECISION_HINT is f32."""

import numpy as np
import openvino
from openvino import opset13 as op

q, k, v = inputs = [op.parameter([1, 1, 3, 3], np.float32) for _ in range(3)]
built = openvino.Model([op.scaled_dot_product_attention(q, k, v)], inputs)
arrays = [np.zeros((1, 1, 3, 3), np.float32)] * 2 + [np.eye(3, dtype=np.float32)[None, None]]
errors = {}
for settings in ({}, {"INFERENCE_PRECISION_HINT": "f32"}):
    compiled = openvino.Core().compile_model(built, "CPU", settings)
    errors[compiled.get_property("INFERENCE_PRECISION_HINT").to_string()] = abs(compiled(arrays)[0] - 1 / 3).max()
print(errors)
assert errors["f32"] < 1e-7 and errors.get("bf16", 1) > 1e-4
