"""ONNX Runtime aligns a causal mask with the first key, and with nonpad_kv_seqlen with the last key."""

import numpy as np
import onnxruntime
from onnx import TensorProto as T
from onnx import helper

arrays = {"Q": np.zeros((1, 1, 2, 4), np.float32), "K": np.zeros((1, 1, 4, 4), np.float32)}
arrays |= {"V": np.eye(4, dtype=np.float32)[None, None], "n": np.array([4])}
found = []
for names in (["Q", "K", "V"], ["Q", "K", "V", "", "", "", "n"]):
    given = {name: arrays[name] for name in names if name}
    kinds = {name: T.INT64 if name == "n" else T.FLOAT for name in given}
    inputs = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in given.items()]
    node = helper.make_node("Attention", names, ["Y"], is_causal=1)
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("Y", T.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    found.append(onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)[0][0, 0])
print(*found, sep="\n")
assert found[0][0].tolist() == [1, 0, 0, 0] and (found[1][0][:3] > 0.33).all()
