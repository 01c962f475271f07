"""The implementations of the table, in its order, and the notes that go with their cells."""

from dataclasses import dataclass, field

__all__ = ["IMPLEMENTATIONS", "Implementation"]

Notes = dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One row of the table.

    target: FILE.py:function in the folder implementations · package: its module; distribution: what it is called where
    it is installed from · level: the highest that is run · seconds: the limit of a call · minutes: that of the run ·
    notes: scripts of the folder notes by column
    """

    name: str
    target: str
    package: str
    distribution: str = ""
    level: int = 5
    seconds: float = 20.0
    minutes: float = 5.0
    notes: Notes = field(default_factory=dict)


SDPA: Notes = {"causal row": ("torch/sdpa_top_left",), "no leaks": ("torch/sdpa_nan_behind_mask",)}
MHA: Notes = {"mask row": ("torch/mha_polarity",), "no leaks": ("torch/sdpa_nan_behind_mask",)}
FLEX: Notes = {"no leaks": ("torch/flex_nan_behind_mask",), "empty rows": ("torch/flex_no_keys",)}
KERAS: Notes = {
    "empty_row row": ("keras/empty_row",),
    "dtypes": ("keras/float64",),
    "together": ("keras/mask_and_bias",),
}
ATTEND: Notes = {
    "groups row": ("x_transformers/groups",),
    "causal row": ("x_transformers/more_rows_than_keys",),
}

IMPLEMENTATIONS = (
    Implementation(
        name="torch SDPA",
        target="torch_sdpa.py:default",
        package="torch",
        distribution="torch",
        notes=SDPA | {"masks": ("torch/sdpa_mask_and_causal",)},
    ),
    Implementation(
        name="torch SDPA, math",
        target="torch_sdpa.py:math",
        package="torch",
        distribution="torch",
        notes=SDPA | {"masks": ("torch/sdpa_mask_and_causal",)},
    ),
    Implementation(
        name="torch SDPA, flash",
        target="torch_sdpa.py:flash",
        package="torch",
        distribution="torch",
        notes=SDPA | {"formula": ("torch/sdpa_flash_refuses",)},
    ),
    Implementation(
        name="nn.MultiheadAttention",
        target="torch_mha.py:with_weights",
        package="torch",
        distribution="torch",
        notes=MHA | {"empty_row row": ("torch/mha_empty_row",)},
    ),
    Implementation(
        name="nn.MultiheadAttention, no weights",
        target="torch_mha.py:without_weights",
        package="torch",
        distribution="torch",
        notes=MHA | {"empty_row row": ("torch/mha_empty_row",)},
    ),
    Implementation(
        name="FlexAttention", target="torch_flex.py:eager", package="torch", distribution="torch", notes=FLEX
    ),
    Implementation(
        name="FlexAttention, compiled",
        target="torch_flex.py:compiled",
        package="torch",
        distribution="torch",
        level=2,
        seconds=60.0,
        minutes=12.0,
        notes=FLEX,
    ),
    Implementation(
        name="JAX",
        target="jax_nn.py:xla",
        package="jax",
        distribution="jax",
        notes={
            "causal row": ("jax/top_left",),
            "empty_row row": ("jax/empty_row",),
            "empty rows": ("jax/empty_row",),
            "lse": ("jax/lse_dtype",),
            "dtypes": ("jax/lse_dtype", "jax/float64"),
            "no leaks": ("jax/nan_behind_mask",),
        },
    ),
    Implementation(
        name="transformers eager",
        target="hugging_face.py:eager",
        package="transformers",
        distribution="transformers",
        notes={"empty_row row": ("transformers/eager_empty_row",), "dtypes": ("transformers/eager_float64",)},
    ),
    Implementation(
        name="transformers sdpa",
        target="hugging_face.py:sdpa",
        package="transformers",
        distribution="transformers",
        notes={
            "causal row": ("transformers/sdpa_causal_by_rows", "transformers/sdpa_causal_by_default"),
            "causal": ("transformers/sdpa_causal_by_rows",),
            "masks": ("transformers/sdpa_mask_drops_causal",),
            "together": ("transformers/sdpa_mask_drops_causal",),
            "no leaks": ("torch/sdpa_nan_behind_mask",),
        },
    ),
    Implementation(
        name="ONNX Runtime",
        target="onnx_runtime.py:attention",
        package="onnxruntime",
        distribution="onnxruntime",
        notes={
            "causal row": ("onnxruntime/causal_lengths",),
            "masks": ("onnxruntime/mask_broadcast",),
            "no leaks": ("onnxruntime/nan_behind_mask",),
        },
    ),
    Implementation(
        name="OpenVINO",
        target="open_vino.py:attention",
        package="openvino",
        distribution="openvino",
        notes={
            "dtypes row": ("openvino/default_precision",),
            "masks": ("openvino/mask_drops_causal",),
            "together": ("openvino/mask_drops_causal",),
            "empty_row row": ("openvino/empty_row",),
            "empty rows": ("openvino/no_keys",),
        },
    ),
    Implementation(
        name="Keras on torch", target="keras_ops.py:on_torch", package="keras", distribution="keras", notes=KERAS
    ),
    Implementation(
        name="Keras on JAX", target="keras_ops.py:on_jax", package="keras", distribution="keras", notes=KERAS
    ),
    Implementation(
        name="x-transformers",
        target="x_transformers_attend.py:plain",
        package="x_transformers",
        distribution="x-transformers",
        notes=ATTEND
        | {
            "softcap": ("x_transformers/softcap_after_bias",),
            "dtypes": ("x_transformers/float64",),
        },
    ),
    Implementation(
        name="x-transformers, flash",
        target="x_transformers_attend.py:flash",
        package="x_transformers",
        distribution="x-transformers",
        notes=ATTEND,
    ),
    Implementation(name="regard, NumPy", target="regard_attention.py:jit", package="regard"),
    Implementation(name="regard, reference", target="regard_attention.py:reference", package="regard"),
    Implementation(name="regard, torch", target="regard_attention.py:autograd", package="regard"),
    Implementation(name="regard.torch.attention", target="regard_attention.py:operator", package="regard"),
    Implementation(name="regard.KVCache", target="regard_attention.py:cache", package="regard"),
)
