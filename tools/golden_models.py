"""Tiny models by Hugging Face: weights, logits, losses and every gradient, for make_golden.py.

Each model gives NAME.golden and NAME.yaml, the same model in our settings. Arrays:

    id, target, doc (B, T)     target -1: no loss; doc: position of the first token of the document
    loss (B, T)                nats, 0 where the target is -1;  mean (1): over targets that are not -1
    logits (T, V)              of sequence 0, which is one document
    weight/NAME, grad/NAME     by parameter, under the names of Hugging Face's files: experts one by one
    state/NAME                 not trained: the router's bias

Weights have deviation 0.2 (norms: around 1), so that no part of the network is too small to see. A
seed is good only if no token's experts change when the weights do by one part in a thousand: then
rounding cannot change them either.
"""
import numpy as np
import torch
import torch.nn.functional as F
import transformers
import yaml

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


def gpt_oss():
    """Windows on even layers (TOKENS is longer), sinks, biases everywhere, the clamped SwiGLU. To be in
    MODELS once attention.window, attention.sinks and moe.router_bias train."""
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


MODELS = [deepseek_v2_lite, deepseek_v2, deepseek_v3, llama, qwen3_moe]


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


def mask_of(doc, window=TOKENS):
    """(B, 1, T, T) to add to scores: a token sees `window` keys, itself included."""
    at = torch.arange(TOKENS)
    seen = (at[None, None] <= at[None, :, None]) & (at[None, None] >= doc[:, :, None])
    seen = seen & (at[None, None] > at[None, :, None] - window)
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


def masks_of(config, doc):
    """One mask, or by kind of layer where kinds see different keys."""
    if "sliding_attention" not in (getattr(config, "layer_types", None) or []):
        return mask_of(doc)
    return dict(full_attention=mask_of(doc), sliding_attention=mask_of(doc, config.sliding_window))


def run(model, id, doc):
    """Logits, and the sorted experts of every token in every MoE layer."""
    chosen, hooks = [], []
    for name, module in model.named_modules():
        if name.endswith(("mlp.gate", "mlp.router")):
            hooks.append(module.register_forward_hook(
                lambda m, i, o: chosen.append(o[2].sort(-1).values)))
    logits = model(input_ids=id, attention_mask=masks_of(model.config, doc), use_cache=False).logits
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
            yield name.replace(part, f"{e}.{half}.{kind}"), array.contiguous()


def by_file_name(name, value, fused=False):
    """Hugging Face keeps experts fused in memory and apart in files: (name, array) as in files."""
    if fused and ".experts." in name:
        yield from gpt_oss_name(name, value)
    elif fused and name.endswith("router.weight"):
        yield name.replace("router", "gate"), value
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
        for part, value in by_file_name(name, p, fused):
            arrays[f"weight/{part}"] = value
        for part, value in by_file_name(name, p.grad, fused):
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
        golden_format.write(f"{folder}/{name}.golden", f"{made_by}, seed {seed}", arrays)
        with open(f"{folder}/{name}.yaml", "w") as f:
            yaml.safe_dump(settings(name, rows), f, sort_keys=False)
