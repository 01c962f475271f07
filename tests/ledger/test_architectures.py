"""Every architecture of transformers: each number of its cost is found in two ways, and both agree, as the docs say."""

import pytest
import transformers as T

from bench import cost_architectures as architectures
from bench.cost_architectures import compare
from regard.torch.hf.tiny_models import mappings
from tests import ROOT
from tests.support.lanes import sweep
from tests.torch.hf.test_architectures import in_docs

T.logging.set_verbosity_error()

TEXT = (ROOT / "docs" / "reference" / "cost-architectures.md").read_text(encoding="utf-8").partition("agrees")[2]
AGREE = ["llama", "llama4_text", "gpt2", "deepseek_v2", "gemma3_text", "jamba", "mamba2", "qwen3_next", "kimi_linear"]
AGREE += ["t5", "whisper", "vit"]
COUNTED = ["bloom", "clip", "minimax"]
FEW = dict.fromkeys(AGREE, "agrees") | dict.fromkeys(COUNTED, "counted") | {"timm_wrapper": "refused"}


@pytest.mark.parametrize("name", FEW)
def test_a_few(name):
    """Attention of all kinds, recurrences, experts, an encoder and its decoder, images."""
    row = compare(name)
    assert row.result == FEW[name], row


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *sweep(*range(7, 70, 7))])
def test_some_architectures(first):
    """The page says of each what is found; none differs. The page itself is made of all of them, in some minutes."""
    for name in sorted(mappings())[first::70]:
        row = compare(name)
        assert row.result != "differs", row
        assert row.reason or row.result == "agrees"
        assert in_docs(name, TEXT) == architectures.HEADINGS[row.result], row
