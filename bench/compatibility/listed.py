"""The implementations of the table, in its order, and the notes that go with their cells."""

from dataclasses import dataclass, field

__all__ = ["IMPLEMENTATIONS", "Implementation"]

Notes = dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One row of the table.

    target: FILE.py:function in the folder implementations · package: its module; distribution: what it is installed as,
    if that has another name · level: the highest that is run · seconds: the limit of a call · minutes: that of the
    run · notes: scripts of the folder notes by column; "… convention" is a column of the table of conventions
    """

    name: str
    target: str
    package: str
    distribution: str = ""
    level: int = 5
    seconds: float = 60.0
    minutes: float = 15.0
    notes: Notes = field(default_factory=dict)


def leaks(*scripts: str) -> Notes:
    """A NaN behind a mask shows in the output, and in gradients."""
    return {"no leaks": scripts, "gradients": scripts}


SDPA = leaks("torch/sdpa_nan_behind_mask") | {"causal convention": ("torch/sdpa_top_left",)}
BOTH_MASKS = ("torch/sdpa_mask_and_causal",)
FLASH = ("torch/sdpa_flash_refuses",)
MHA: Notes = leaks("torch/sdpa_nan_behind_mask") | {
    "mask convention": ("torch/mha_polarity",),
    "empty_row convention": ("torch/mha_empty_row",),
}
FLEX: Notes = leaks("torch/flex_nan_behind_mask") | {
    "empty rows": ("torch/flex_no_keys", "torch/flex_no_rows"),
}
KERAS: Notes = leaks("keras/nan_behind_mask") | {
    "causal convention": ("jax/top_left",),
    "empty_row convention": ("keras/empty_row",),
    "dtypes": ("keras/float64",),
    "empty rows": ("keras/minus_infinity",),
    "masks": ("keras/mask_and_bias",),
    "together": ("keras/mask_and_bias",),
    "gradients": ("keras/nan_behind_mask", "keras/empty_row"),
}
ATTEND: Notes = leaks("x_transformers/nan_behind_mask") | {
    "groups convention": ("x_transformers/groups",),
    "causal convention": ("x_transformers/more_rows_than_keys",),
    "empty rows": ("x_transformers/more_rows_than_keys",),
    "together": ("x_transformers/more_rows_than_keys",),
}

IMPLEMENTATIONS = (
    Implementation(
        name="torch SDPA",
        target="torch_sdpa.py:default",
        package="torch",
        notes=SDPA | {"masks": BOTH_MASKS},
    ),
    Implementation(
        name="torch SDPA, math",
        target="torch_sdpa.py:math",
        package="torch",
        notes=SDPA | dict.fromkeys(("masks", "bias", "together"), BOTH_MASKS) | {"large": ("torch/sdpa_math_memory",)},
    ),
    Implementation(
        name="torch SDPA, flash",
        target="torch_sdpa.py:flash",
        package="torch",
        notes=SDPA
        | dict.fromkeys(("formula", "memory", "dropout"), FLASH)
        | {"masks": BOTH_MASKS, "gradients": (*SDPA["gradients"], *FLASH)},
    ),
    Implementation(
        name="nn.MultiheadAttention",
        target="torch_mha.py:with_weights",
        package="torch",
        notes=MHA
        | {
            "empty rows": ("torch/mha_empty_row",),
            "gradients": (*MHA["gradients"], "torch/mha_empty_row"),
            "large": ("torch/mha_memory",),
        },
    ),
    Implementation(
        name="nn.MultiheadAttention, no weights",
        target="torch_mha.py:without_weights",
        package="torch",
        notes=MHA,
    ),
    Implementation(
        name="FlexAttention",
        target="torch_flex.py:eager",
        package="torch",
        notes=FLEX | {"large": ("torch/flex_memory",)},
    ),
    Implementation(
        name="FlexAttention, compiled",
        target="torch_flex.py:compiled",
        package="torch",
        level=2,
        minutes=30.0,
        notes=FLEX
        | {"dtypes": ("torch/flex_compiled_float64", "torch/flex_compiled_other_sizes")}
        | dict.fromkeys(("masks", "softcap"), ("torch/flex_compiled_other_sizes",)),
    ),
    Implementation(
        name="JAX",
        target="jax_nn.py:xla",
        package="jax",
        minutes=20.0,
        notes=leaks("jax/nan_behind_mask")
        | {
            "causal convention": ("jax/top_left",),
            "empty_row convention": ("jax/empty_row",),
            "lse convention": ("jax/lse_dtype",),
            "empty rows": ("jax/empty_row",),
            "dtypes": ("jax/float64",),
            "gradients": ("jax/nan_behind_mask", "jax/lse_gradient", "jax/empty_row"),
            "large": ("jax/memory",),
        },
    ),
    Implementation(
        name="transformers eager",
        target="hugging_face.py:eager",
        package="transformers",
        notes=leaks("transformers/eager_nan_behind_mask")
        | {
            "empty_row convention": ("transformers/eager_empty_row",),
            "empty rows": ("transformers/eager_minus_infinity",),
            "dtypes": ("transformers/eager_float64",),
            "gradients": (
                "transformers/eager_nan_behind_mask",
                "transformers/eager_empty_row",
                "transformers/eager_float64",
            ),
            "large": ("transformers/eager_memory",),
        },
    ),
    Implementation(
        name="transformers sdpa",
        target="hugging_face.py:sdpa",
        package="transformers",
        notes=leaks("torch/sdpa_nan_behind_mask")
        | dict.fromkeys(("masks", "bias", "together"), ("transformers/sdpa_mask_drops_causal",))
        | {
            "causal convention": ("transformers/sdpa_causal_by_default",),
            "causal": ("transformers/sdpa_causal_by_rows",),
        },
    ),
    Implementation(
        name="ONNX Runtime",
        target="onnx_runtime.py:attention",
        package="onnxruntime",
        notes=dict.fromkeys(("masks", "bias"), ("onnxruntime/mask_broadcast",))
        | {
            "causal convention": ("onnxruntime/causal_lengths",),
            "no leaks": ("onnxruntime/nan_behind_mask",),
            "large": ("onnxruntime/memory",),
        },
    ),
    Implementation(
        name="OpenVINO",
        target="open_vino.py:attention",
        package="openvino",
        notes=dict.fromkeys(("masks", "bias", "together"), ("openvino/mask_drops_causal",))
        | {
            "empty_row convention": ("openvino/empty_row",),
            "empty rows": ("openvino/no_keys",),
            "dtypes": ("openvino/default_precision",),
            "no leaks": ("openvino/nan_behind_mask",),
        },
    ),
    Implementation(name="Keras on torch", target="keras_on_torch.py:attention", package="keras", notes=KERAS),
    Implementation(
        name="Keras on JAX",
        target="keras_on_jax.py:attention",
        package="keras",
        minutes=20.0,
        notes=KERAS | {"large": ("jax/memory",)},
    ),
    Implementation(
        name="x-transformers",
        target="x_transformers_attend.py:plain",
        package="x_transformers",
        distribution="x-transformers",
        notes=ATTEND
        | {
            "softcap convention": ("x_transformers/softcap_after_bias",),
            "empty rows": ("x_transformers/more_rows_than_keys", "x_transformers/minus_infinity"),
            "dtypes": ("x_transformers/float64",),
            "gradients": (*ATTEND["gradients"], "x_transformers/float64"),
            "large": ("x_transformers/memory",),
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
    Implementation(
        name="regard, reference",
        target="regard_attention.py:reference",
        package="regard",
        notes={"large": ("regard/reference_memory",)},
    ),
    Implementation(name="regard, torch", target="regard_attention.py:autograd", package="regard"),
    Implementation(name="regard.torch.attention", target="regard_attention.py:operator", package="regard"),
    Implementation(name="regard.KVCache", target="regard_attention.py:cache", package="regard"),
)
