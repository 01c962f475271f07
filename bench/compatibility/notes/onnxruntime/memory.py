"""ONNX Runtime holds the matrix of weights: 256 MiB for 8192 rows."""

from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto as T
from onnx import helper


def peak():
    """The most memory so far, in MiB, as Linux counts it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


x = np.ones((1, 1, 8192, 16), np.float32)
inputs, out = ([helper.make_tensor_value_info(name, T.FLOAT, None) for name in names] for names in ("QKV", "Y"))
graph = helper.make_graph([helper.make_node("Attention", ["Q", "K", "V"], ["Y"])], "one", inputs, out)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())
before = peak()
session.run(None, {"Q": x, "K": x, "V": x})
grew = peak() - before
print(f"{grew:.0f} MiB")
assert grew > 250
