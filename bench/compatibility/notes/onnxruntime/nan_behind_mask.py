"""ONNX Runtime lets a NaN in a masked key or value through."""

import numpy as np
import onnxruntime
from onnx import TensorProto as T
from onnx import helper

x, mask = np.ones((1, 1, 3, 4), np.float32), np.array([[True, True, False]] * 3)  # no row attends to key 2
bad = x.copy()
bad[0, 0, 2] = np.nan
inputs = [helper.make_tensor_value_info(name, T.FLOAT, x.shape) for name in "QKV"]
inputs.append(helper.make_tensor_value_info("M", T.BOOL, mask.shape))
node, out = (
    helper.make_node("Attention", ["Q", "K", "V", "M"], ["Y"]),
    helper.make_tensor_value_info("Y", T.FLOAT, None),
)
graph = helper.make_graph([node], "one", inputs, [out])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
key, value = (session.run(None, {"Q": x, "K": k, "V": v, "M": mask})[0] for k, v in ((bad, x), (x, bad)))
print(key[0, 0, :, 0], value[0, 0, :, 0])
assert np.isnan(key).all() and np.isnan(value).all()
