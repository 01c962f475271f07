"""Tiny models of transformers, one of each kind that is recorded."""

import torch
import transformers as T

TEXT = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 64}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
MODELS = {
    "bert": lambda: T.BertModel(T.BertConfig(**TEXT)),
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**GROUPED)),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(**GROUPED, sliding_window=4)),
    "gemma2": lambda: T.Gemma2ForCausalLM(
        T.Gemma2Config(**GROUPED, sliding_window=4, query_pre_attn_scalar=8, attn_logit_softcapping=2.0)),
    "gpt-oss": lambda: T.GptOssForCausalLM(
        T.GptOssConfig(**GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1,
                       layer_types=["sliding_attention", "full_attention"])),
    "t5": lambda: T.T5ForConditionalGeneration(
        T.T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)),
    "bart": lambda: T.BartForConditionalGeneration(
        T.BartConfig(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                     decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64)),
}  # fmt: skip


def sharpened(model):
    """The model with weights large enough that attention is far from even."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4)
    return model
