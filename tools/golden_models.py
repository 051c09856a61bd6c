"""Tiny models by Hugging Face: weights, logits, losses and every gradient, for make_golden.py.

Each model gives NAME.golden.zst and NAME.yaml, the same model in our settings. Arrays:

    id, target, doc (B, T)     target -1: no loss; doc: position of the first token of the document
    loss (B, T)                nats, 0 where the target is -1;  mean (1): over targets that are not -1
    logits (T, V)              of sequence 0, which is one document
    weight/NAME, grad/NAME     by parameter, under the names of Hugging Face's files: experts one by one
    state/NAME                 not trained: the router's bias

Weights have deviation 0.2 (norms: around 1), so that no part of the network is too small to see. A
seed is good only if no token's experts change when the weights do by one part in a thousand (then
rounding cannot change them either) and if every expert has a token.
"""
import numpy as np
import torch
import torch.nn.functional as F
import transformers
import yaml
from transformers import masking_utils

import golden_format

SEQUENCES, TOKENS, VOCAB = 2, 17, 61
DOCUMENTS = [[0], [0, 6, 7]]  # first positions
SIZES = dict(vocab_size=VOCAB, hidden_size=24, num_hidden_layers=3, intermediate_size=40,
             max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=False)
MLA = dict(SIZES, num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=10, qk_nope_head_dim=8,
           qk_rope_head_dim=6, v_head_dim=5, first_k_dense_replace=1, n_shared_experts=2,
           moe_intermediate_size=11)

MLA_ROWS = dict(kind="mla", heads=3, kv_rank=10, nope_dim=8, rope_dim=6, v_dim=5, rope_interleaved=True)


def deepseek_v2_lite():
    config = transformers.DeepseekV2Config(
        **MLA, q_lora_rank=None, n_routed_experts=6, num_experts_per_tok=2, topk_method="greedy",
        norm_topk_prob=False, routed_scaling_factor=1.0)
    rows = dict(attention=dict(MLA_ROWS, q_rank=0),
                moe=dict(experts=6, shared=2, top_k=2, ffn=11, score="softmax"))
    return transformers.DeepseekV2ForCausalLM, config, rows


def deepseek_v2():
    config = transformers.DeepseekV2Config(
        **MLA, q_lora_rank=14, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        topk_method="group_limited_greedy", norm_topk_prob=False, routed_scaling_factor=2.5)
    rows = dict(attention=dict(MLA_ROWS, q_rank=14),
                moe=dict(experts=8, shared=2, top_k=3, ffn=11, score="softmax", groups=4, top_groups=2,
                         group_score_top=1, scaling=2.5))
    return transformers.DeepseekV2ForCausalLM, config, rows


def deepseek_v3():
    config = transformers.DeepseekV3Config(
        **MLA, q_lora_rank=14, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        norm_topk_prob=True, routed_scaling_factor=2.5, rope_interleave=True)
    rows = dict(attention=dict(MLA_ROWS, q_rank=14),
                moe=dict(experts=8, shared=2, top_k=3, ffn=11, score="sigmoid", groups=4, top_groups=2,
                         group_score_top=2, normalise=True, scaling=2.5, bias_rate=0.001))
    return transformers.DeepseekV3ForCausalLM, config, rows


def llama():
    config = transformers.LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
                                      attention_bias=False, mlp_bias=False)
    rows = dict(attention=dict(kind="gqa", heads=4, kv_heads=2, head_dim=6, rope_interleaved=False),
                model=dict(dense_layers=3))
    return transformers.LlamaForCausalLM, config, rows


def qwen3_moe():
    config = transformers.Qwen3MoeConfig(
        **SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=6, attention_bias=False,
        decoder_sparse_step=1, mlp_only_layers=[], num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=11, norm_topk_prob=True)
    rows = dict(attention=dict(kind="gqa", heads=4, kv_heads=2, head_dim=6, qk_norm="rms",
                               rope_interleaved=False),
                model=dict(dense_layers=0),
                moe=dict(experts=6, shared=0, top_k=2, ffn=11, score="softmax", normalise=True))
    return transformers.Qwen3MoeForCausalLM, config, rows


def scaling(**parameters):
    """rope_parameters of transformers, and our rows for them."""
    rows = dict(scaling=parameters["rope_type"], original=parameters.get("original_max_position_embeddings", 0),
                low_freq=parameters.get("low_freq_factor", 1), high_freq=parameters.get("high_freq_factor", 4))
    same = ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")
    rows.update({k: parameters[k] for k in same if k in parameters})
    return dict(parameters, rope_theta=THETA), rows


THETA = 50  # so that slow pairs, too, turn within TOKENS
LONG = dict(SIZES, max_position_embeddings=256)


def deepseek_v3_yarn():
    """Both mscales, biases, and latents whose norms keep their epsilon. One pair keeps its frequency, two
    are between, one is stretched whole."""
    sizes = dict(MLA, max_position_embeddings=256, qk_rope_head_dim=10, rms_norm_eps=1e-3)
    rope, scaled = scaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=4.0,
                           beta_slow=0.5, mscale=0.7, mscale_all_dim=1.1)
    config = transformers.DeepseekV3Config(
        **sizes, q_lora_rank=14, n_routed_experts=7, num_experts_per_tok=3, n_group=1, topk_group=1,
        norm_topk_prob=True, routed_scaling_factor=2.5, rope_interleave=True, attention_bias=True,
        rope_parameters=rope)
    rows = dict(model=dict(norm_eps=1e-3), rope=scaled,
                attention=dict(MLA_ROWS, q_rank=14, rope_dim=10, rope_theta=THETA, bias=True, out_bias=True,
                               latent_eps=1e-6),
                moe=dict(experts=7, shared=2, top_k=3, ffn=11, score="sigmoid", group_score_top=2,
                         normalise=True, scaling=2.5, bias_rate=0.001))
    return transformers.DeepseekV3ForCausalLM, config, rows


def scaled_llama(**parameters):
    rope, scaled = scaling(**parameters)
    config = transformers.LlamaConfig(**LONG, num_attention_heads=3, num_key_value_heads=1, head_dim=10,
                                      attention_bias=True, mlp_bias=False, rope_parameters=rope)
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=1, head_dim=10, rope_interleaved=False,
                               rope_theta=THETA, bias=True, out_bias=True),
                rope=scaled, model=dict(dense_layers=3))
    return transformers.LlamaForCausalLM, config, rows


def llama_linear():
    return scaled_llama(rope_type="linear", factor=3.0)


def llama_yarn():
    """gpt-oss's convention: bounds between pairs, and a factor on what is rotated alone."""
    return scaled_llama(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=4.0,
                        beta_slow=0.5, truncate=False)


def llama3():
    """Pairs that keep their frequency, one between, one that is stretched whole."""
    return scaled_llama(rope_type="llama3", factor=8.0, original_max_position_embeddings=64,
                        low_freq_factor=0.6, high_freq_factor=4.0)


def glm4_moe():
    config = transformers.Glm4MoeConfig(
        **SIZES, num_attention_heads=3, num_key_value_heads=1, head_dim=12, attention_bias=True,
        use_qk_norm=True, first_k_dense_replace=1, n_shared_experts=1, n_routed_experts=7,
        num_experts_per_tok=3, moe_intermediate_size=11, norm_topk_prob=True, routed_scaling_factor=1.5,
        rope_parameters=dict(rope_type="default", rope_theta=THETA, partial_rotary_factor=0.5))
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=1, head_dim=12, rotary=0.5, qk_norm="rms",
                               bias=True, rope_interleaved=False, rope_theta=THETA),
                moe=dict(experts=7, shared=1, top_k=3, ffn=11, score="sigmoid", group_score_top=2,
                         normalise=True, scaling=1.5, bias_rate=0.001))
    return transformers.Glm4MoeForCausalLM, config, rows


def olmoe():
    config = transformers.OlmoeConfig(
        **dict(SIZES, intermediate_size=11), num_attention_heads=3, num_key_value_heads=3,
        attention_bias=False, num_experts=7, num_experts_per_tok=2, norm_topk_prob=False, pad_token_id=None,
        eos_token_id=None)
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=3, head_dim=8, qk_norm="width",
                               rope_interleaved=False),
                model=dict(dense_layers=0),
                moe=dict(experts=7, shared=0, top_k=2, ffn=11, score="softmax"))
    return transformers.OlmoeForCausalLM, config, rows


def mixtral():
    config = transformers.MixtralConfig(
        **dict(SIZES, intermediate_size=11), num_attention_heads=3, num_key_value_heads=1, head_dim=8,
        num_local_experts=7, num_experts_per_tok=2, sliding_window=None)
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=1, head_dim=8, rope_interleaved=False,
                               rope_theta=1000000),
                model=dict(dense_layers=0),
                moe=dict(experts=7, shared=0, top_k=2, ffn=11, score="softmax", normalise=True))
    return transformers.MixtralForCausalLM, config, rows


def qwen2_moe():
    """A gate before the shared expert; every second layer has experts."""
    config = transformers.Qwen2MoeConfig(
        **SIZES, num_attention_heads=3, num_key_value_heads=1, decoder_sparse_step=2, num_experts=7,
        num_experts_per_tok=3, moe_intermediate_size=11, shared_expert_intermediate_size=22,
        norm_topk_prob=False, qkv_bias=True, use_sliding_window=False, mlp_only_layers=[])
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=1, head_dim=8, rope_interleaved=False, bias=True),
                model=dict(dense_layers=0),
                moe=dict(experts=7, shared=2, top_k=3, ffn=11, score="softmax", shared_gate=True, every=2))
    return transformers.Qwen2MoeForCausalLM, config, rows


def llama4():
    """The routing weight multiplies the expert's input; every second layer has experts, every third no
    positions and no chunks."""
    config = transformers.Llama4TextConfig(
        **dict(SIZES, intermediate_size=11), intermediate_size_mlp=40, num_attention_heads=3,
        num_key_value_heads=1, head_dim=10, interleave_moe_layer_step=2, num_local_experts=5,
        num_experts_per_tok=1, no_rope_layer_interval=3, attention_chunk_size=5, use_qk_norm=True,
        attn_temperature_tuning=True, floor_scale=5, attn_scale=0.3,
        rope_parameters=dict(rope_type="default", rope_theta=THETA))
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=1, head_dim=10, qk_norm="l2", nope_every=3,
                               chunk=5, full_every=3, temper_floor=5, temper_scale=0.3,
                               rope_interleaved=True, rope_theta=THETA),
                model=dict(dense_layers=0),
                moe=dict(experts=5, shared=1, top_k=1, ffn=11, score="sigmoid", score_input=True, every=2))
    return transformers.Llama4ForCausalLM, config, rows


def llama_chunks():
    """Llama with the mask of Llama 4's chunks."""
    cls, config, rows = llama()
    config.attention_chunk_size = 5
    rows["attention"]["chunk"] = 5
    return cls, config, rows


def gpt_oss():
    """Windows on even layers (TOKENS is longer), sinks, biases everywhere, the clamped SwiGLU."""
    config = transformers.GptOssConfig(
        **SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=6, sliding_window=5,
        num_local_experts=6, num_experts_per_tok=2, swiglu_limit=1.5,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                             truncate=False, original_max_position_embeddings=16))
    config.intermediate_size = 11
    rows = dict(attention=dict(kind="gqa", heads=4, kv_heads=2, head_dim=6, rope_interleaved=False, bias=True,
                               out_bias=True, window=5, full_every=2, sinks=True),
                rope=dict(scaling="yarn", factor=4, original=16, beta_fast=32, beta_slow=1, truncate=False),
                model=dict(dense_layers=0),
                moe=dict(experts=6, shared=0, top_k=2, ffn=11, score="softmax", normalise=True,
                         router_bias=True, expert_bias=True, activation="clamped", limit=1.5))
    return transformers.GptOssForCausalLM, config, rows


def qwen3_next():
    """Two gated delta nets, then gated attention, and dense MLPs: with experts nearly every seed has a token between two of them. A large epsilon:
    the norm after the recurrence makes gradients of small outputs steep. With 1e-6 the embedding's gradient of
    transformers in f32 is 3e-3 from its own in f64 for this seed; with 0.01 it is 3e-5."""
    config = transformers.Qwen3NextConfig(
        **dict(SIZES, rms_norm_eps=0.01), num_attention_heads=3, num_key_value_heads=1, head_dim=8, layer_types=["linear_attention"] * 2 + ["full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5,
        linear_conv_kernel_dim=4, mlp_only_layers=[0, 1, 2])
    rows = dict(attention=dict(kind="gqa", heads=3, kv_heads=1, head_dim=8, rope_interleaved=False,
                               rotary=0.5, qk_norm="rms", gate=True),
                delta=dict(full_every=3, key_heads=2, heads=4, key_dim=6, value_dim=5, taps=4),
                model=dict(dense_layers=3, norm_eps=0.01))
    return transformers.Qwen3NextForCausalLM, config, rows


MODELS = [deepseek_v2_lite, deepseek_v2, deepseek_v3, llama, qwen3_moe, deepseek_v3_yarn, llama_linear,
          llama_yarn, llama3, glm4_moe, olmoe, mixtral, qwen2_moe, llama4,
          gpt_oss, llama_chunks, qwen3_next]


def settings(name, rows):
    """Our settings of the model. One sequence a micro-batch: gradients have to add up."""
    out = dict(
        run=dict(compute="f32", threads=2),
        model=dict(name=name, vocab=VOCAB, hidden=24, layers=3, dense_layers=1, ffn=40, norm_eps=1e-6,
                   loss_chunk=7),
        attention=dict(rope_theta=10000, document_mask=True),
        moe=dict(aux_loss=0),
        data=dict(sequence=TOKENS),
        train=dict(batch=SEQUENCES, micro_batch=1))
    for section, values in rows.items():
        out.setdefault(section, {}).update(values)
    return out


def randomise(model, rng):
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = 0.2 * rng.standard_normal(tuple(p.shape))
            norm = p.ndim == 1 and not name.endswith(("bias", "sinks"))
            p.copy_(torch.tensor(values + (1 if norm else 0), dtype=torch.float32))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(torch.tensor(0.1 * rng.standard_normal(tuple(b.shape)), dtype=torch.float32))


def mask_of(doc):
    """(B, 1, T, T) to add to scores."""
    at = torch.arange(doc.shape[1])
    seen = (at[None, None] <= at[None, :, None]) & (at[None, None] >= doc[:, :, None])
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


def masks_of(config, doc):
    """What a model takes as its mask: documents, and what transformers makes of windows and chunks. No doc:
    one document, and the class makes all of it."""
    if doc is None:
        return None
    documents, like = mask_of(doc), torch.zeros(*doc.shape, 1)
    given = dict(config=config, inputs_embeds=like, attention_mask=None, past_key_values=None)
    if config.model_type == "gpt_oss":
        window = masking_utils.create_sliding_window_causal_mask(**given)
        return dict(full_attention=documents, sliding_attention=torch.minimum(documents, window))
    if config.model_type == "llama4_text":
        chunks = masking_utils.create_chunked_causal_mask(**given)
        return dict(full_attention=documents, chunked_attention=torch.minimum(documents, chunks))
    if getattr(config, "attention_chunk_size", None) is not None:
        return torch.minimum(documents, masking_utils.create_chunked_causal_mask(**given))
    return documents


def logits_of(model, id, doc):
    """The class that has no documents gets them one by one."""
    if doc is None or model.config.model_type != "qwen3_next":
        return model(input_ids=id, attention_mask=masks_of(model.config, doc), use_cache=False).logits
    rows = []
    for tokens, first in zip(id, doc):
        ends = torch.unique(first, sorted=True).tolist()[1:] + [len(tokens)]
        parts = [tokens[b:e] for b, e in zip([0] + ends, ends)]
        rows.append(torch.cat([model(input_ids=part[None], use_cache=False).logits[0] for part in parts]))
    return torch.stack(rows)


def run(model, id, doc):
    """Logits, and the sorted experts of every token in every MoE layer."""
    chosen, hooks = [], []
    for name, module in model.named_modules():
        if name.endswith(("mlp.gate", "mlp.router")):
            hooks.append(module.register_forward_hook(
                lambda m, i, o: chosen.append(o[2].sort(-1).values)))
        if name.endswith("feed_forward.router"):
            hooks.append(module.register_forward_hook(
                lambda m, i, o: chosen.append(o[1].argmax(-1))))
    logits = logits_of(model, id, doc)
    for hook in hooks:
        hook.remove()
    return logits, chosen


def steady(model, id, doc, rng):
    """Is the choice of experts the same for weights one part in a thousand away, ten times?"""
    _, want = run(model, id, doc)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for _ in range(10):
        moved = {k: v * (1 + 1e-3 * torch.tensor(rng.standard_normal(tuple(v.shape)), dtype=v.dtype))
                 for k, v in state.items()}
        model.load_state_dict(moved)
        _, have = run(model, id, doc)
        model.load_state_dict(state)
        if not all(torch.equal(a, b) for a, b in zip(want, have)):
            return False
    return True


def gpt_oss_name(name, value):
    """gpt-oss keeps experts fused in files, too, (in, out), gate and up in turn: apart, as all others."""
    part = name.rsplit(".", 1)[-1]
    kind = "bias" if part.endswith("_bias") else "weight"
    for e, one in enumerate(value):
        one = one if kind == "bias" else one.T
        halves = dict(gate_proj=one[::2], up_proj=one[1::2]) if "gate_up" in part else dict(down_proj=one)
        for half, array in halves.items():
            yield name.replace(part, f"{e}.{half}.{kind}"), array


def by_file_name(name, value, fused=False):
    """Hugging Face keeps experts fused in memory and apart in files: (name, array) as in files, with the
    name that most files have."""
    turned = "feed_forward" in name and "experts." in name  # (in, out)
    name = name.replace("feed_forward", "mlp").replace("router.weight", "gate.weight")
    name = name.replace("shared_expert.", "shared_experts.")
    if name.endswith("conv1d.weight"):
        value = value.squeeze(1)
    if turned:
        value = value.transpose(1, 2)
    if fused and ".experts." in name:
        yield from gpt_oss_name(name, value)
    elif name.endswith("experts.gate_up_proj"):
        for e, both in enumerate(value):
            for half, part in zip(("gate_proj", "up_proj"), both.chunk(2)):
                yield name.replace("gate_up_proj", f"{e}.{half}.weight"), part
    elif name.endswith("experts.down_proj"):
        for e, part in enumerate(value):
            yield name.replace("down_proj", f"{e}.down_proj.weight"), part
    else:
        yield name, value


def one_model(build, seed):
    cls, config, rows = build()
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    rng = np.random.default_rng(seed)
    model = cls(config).float().train()
    randomise(model, rng)
    id = torch.tensor(rng.integers(0, VOCAB, (SEQUENCES, TOKENS)))
    target = torch.tensor(rng.integers(0, VOCAB, (SEQUENCES, TOKENS)))
    target[0, 3] = target[1, -1] = -1
    doc = torch.tensor([[max(s for s in starts if s <= i) for i in range(TOKENS)]
                        for starts in DOCUMENTS])
    if not steady(model, id, doc, rng):
        return None, rows
    logits, _ = run(model, id, doc)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1, reduction="none")
    mean = loss.sum() / (target >= 0).sum()
    mean.backward()
    arrays = dict(id=id, target=target, doc=doc, loss=loss.view(target.shape), mean=mean.view(1),
                  logits=logits[0])
    fused = cls is transformers.GptOssForCausalLM
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        # norms of Qwen3-Next multiply by 1 + w, but for those of gated delta nets; ours multiply by w
        centred = config.model_type == "qwen3_next" and name.endswith("norm.weight") and "linear_attn" not in name
        for part, value in by_file_name(name, p + 1 if centred else p, fused):
            arrays[f"weight/{part}"] = value
        for part, value in by_file_name(name, p.grad, fused):
            if not value.any():
                return None, rows  # an expert without a token
            arrays[f"grad/{part}"] = value
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            arrays[f"state/{name}"] = b
    return {k: v.detach().numpy() for k, v in arrays.items()}, rows


def make(folder, made_by):
    for build in MODELS:
        for seed in range(100):
            arrays, rows = one_model(build, seed)
            if arrays is not None:
                break
        name = build.__name__
        golden_format.write(f"{folder}/{name}.golden.zst", f"{made_by}, seed {seed}", arrays)
        with open(f"{folder}/{name}.yaml", "w") as f:
            yaml.safe_dump(settings(name, rows), f, sort_keys=False)
