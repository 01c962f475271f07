"""A run that is kept in a folder, and small models in folders."""

import pytest

from regard.lens.storage.folder import save
from tests.support.kept_runs import rich


@pytest.fixture
def kept(tmp_path):
    """The folder of a good run."""
    save(rich(), tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Small random models with byte-level tokenizers, saved as anyone would: by name of their kind."""
    import torch
    import transformers as T
    from tokenizers import ByteLevelBPETokenizer

    from regard.torch.hf.tiny_models import tiny_model
    from tests.support.hf_models import SETTINGS

    text = "The animal didn't cross the street because it was too tired."
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator([text] * 9, vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False)
    fast = T.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="</s>", pad_token="</s>")
    made = {}
    for name in ("gpt2", "llama", "t5", "bloom", "vit"):
        torch.manual_seed(0)
        own = SETTINGS.get(name, {})
        made[name] = tmp_path_factory.mktemp(name)
        tiny_model(name, vocab_size=300, eos_token_id=1, bos_token_id=0, **own).save_pretrained(made[name])
        fast.save_pretrained(made[name])
    processor = T.models.vit.image_processing_pil_vit.ViTImageProcessorPil(size={"height": 32, "width": 32})
    processor.save_pretrained(made["vit"])
    return made
