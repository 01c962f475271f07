"""ONNX Runtime refuses masks of shape (B, 1, 1, K), which the operator's specification lets broadcast."""

import numpy as np
import onnxruntime
from onnx import TensorProto as T
from onnx import helper

x, mask = np.ones((1, 1, 2, 4), np.float32), np.ones((1, 1, 1, 2), bool)
inputs = [helper.make_tensor_value_info(name, T.FLOAT, x.shape) for name in "QKV"]
inputs.append(helper.make_tensor_value_info("M", T.BOOL, mask.shape))
node, out = (
    helper.make_node("Attention", ["Q", "K", "V", "M"], ["Y"]),
    helper.make_tensor_value_info("Y", T.FLOAT, None),
)
graph = helper.make_graph([node], "one", inputs, [out])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
try:
    onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"Q": x, "K": x, "V": x, "M": mask})
    raise AssertionError("it was computed")
except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
    print(str(error)[-80:])
