"""Hugging Face folders for the tests of `switchyard convert`, for make_golden.py.

    tests/golden/hf/mixtral/        a tiny Mixtral as transformers saves it: two shards and an index
    tests/golden/hf/mixtral.golden  id (T), logits (T, V)
    tests/golden/hf/NAME.json       config.json of the model of tests/golden/model/NAME.golden, whose
                                    arrays are the weights
"""
import os
import shutil

import numpy as np
import torch
import transformers

import golden_format
import golden_models


def mixtral():
    config = transformers.MixtralConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=2, intermediate_size=14, num_attention_heads=3,
        num_key_value_heads=1, head_dim=6, num_local_experts=7, num_experts_per_tok=2, rms_norm_eps=1e-5,
        max_position_embeddings=32, tie_word_embeddings=False)
    config._attn_implementation = config._experts_implementation = "eager"
    return transformers.MixtralForCausalLM(config).float().eval()


def make(folder, made_by):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(0)
    model = mixtral()
    golden_models.randomise(model, rng)
    shutil.rmtree(f"{folder}/mixtral", ignore_errors=True)
    model.save_pretrained(f"{folder}/mixtral", max_shard_size="24KB")
    id = rng.integers(0, 31, 11)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(id)[None], use_cache=False).logits[0]
    golden_format.write(f"{folder}/mixtral.golden", made_by, dict(id=id, logits=logits.numpy()))
    for build in golden_models.MODELS:
        _, config, _ = build()
        config.architectures = [build()[0].__name__]
        config.dtype = "float32"
        config.to_json_file(f"{folder}/{build.__name__}.json")
