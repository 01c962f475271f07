"""ONNX Runtime holds the matrix of weights: 256 MiB for 8192 rows."""

import resource
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto as T
from onnx import helper

x = np.ones((1, 1, 8192, 16), np.float32)
inputs, out = ([helper.make_tensor_value_info(name, T.FLOAT, None) for name in names] for names in ("QKV", "Y"))
graph = helper.make_graph([helper.make_node("Attention", ["Q", "K", "V"], ["Y"])], "one", inputs, out)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
session.run(None, {"Q": x, "K": x, "V": x})
unit = 2**20 if sys.platform == "darwin" else 2**10
grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
print(f"{grew:.0f} MiB")
assert grew > 250
