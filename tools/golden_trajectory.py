"""Ten steps of two tiny models by plain PyTorch, for make_golden.py: what lies between the settings
and the ops.

The model is written from the papers: MLA and experts (DeepSeek-V2, arXiv:2405.04434; V3,
arXiv:2412.19437), grouped queries (arXiv:2305.13245), rotary positions (arXiv:2104.09864), RMSNorm
(arXiv:1910.07467), the router's bias (arXiv:2408.15664). Gradients are autograd's, the update is
torch.optim.AdamW behind clip_grad_norm_. All in float64, from float32 weights and tokens that the
file holds; every token goes through every expert, so nothing is sorted. At its first and last weights
the model `mla` gives the logits of Hugging Face's DeepseekV3ForCausalLM.

Each model gives NAME.golden.zst and NAME.yaml, the same in our settings. Arrays:

    token (S B T + 1), document (D)   the stream of training tokens, and lengths of its documents;
                                      step s takes sequences [B s, B s + B), each T tokens
    loss, aux_loss, norm, lr (S)      of each step; the norm before clipping
    load (S, L, E)                    tokens that each expert of each MoE layer took
    param/NAME (10, ...)              the weights; then weights, first and second moment after each
                                      of the steps 1, 2 and 10
    state/NAME (S + 1, E)             the router's bias at the start and after each step

Auxiliary loss of a MoE layer: coefficient * mean over groups of tokens (sequences, or micro-batches)
of E / (K T) * sum over e of n_e P_e: n_e of the group's T tokens chose e, P_e is the mean of e's score
over the sum of all scores. So have it DeepSeek's papers and Megatron-LM; load_balancing_loss_func of
Hugging Face lacks the 1 / K.

No rounding may change a route. So a sequence is drawn again until, at the weights of its step, the
last expert chosen is MARGIN above the first that is not, and so the groups of experts, for every token
in every layer; a seed that leads to none is passed over, and
one whose steps are all clipped or none. The router's bias and its rate are multiples of 1/256, hence exact.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F
import transformers
import yaml

import golden_format

KEPT = (1, 2, 10)
MARGIN = 2e-3

# warm-up ends at step 3, the cosine at step 8, the run at step 10; all sizes differ
MLA = dict(
    run=dict(compute="f32", threads=1, device="cpu"),
    model=dict(name="trajectory-mla", vocab=53, hidden=19, layers=3, dense_layers=1, ffn=23, norm_eps=3e-3,
               loss_chunk=7),
    attention=dict(kind="mla", heads=3, q_rank=11, kv_rank=7, nope_dim=5, rope_dim=6, v_dim=9,
                   rope_theta=100, rope_interleaved=True, document_mask=True),
    moe=dict(experts=12, shared=2, top_k=3, ffn=5, score="sigmoid", groups=4, top_groups=2,
             group_score_top=2, normalise=True, scaling=1.75, bias_rate=1 / 64, aux_loss=0.2,
             aux_scope="sequence"),
    data=dict(sequence=16, shuffle=False, validation=0),
    train=dict(steps=10, batch=8, micro_batch=2, clip_norm=1.5),
    optimizer=dict(lr=5e-3, min_lr=1e-3, warmup_steps=3, decay_steps=8, beta1=0.8, beta2=0.9, eps=5e-3,
                   weight_decay=0.5))

# everything that MLA is not; no warm-up, no clipping, the cosine ends with the run
GQA = dict(
    run=dict(compute="f32", threads=1, device="cpu"),
    model=dict(name="trajectory-gqa", vocab=47, hidden=18, layers=2, dense_layers=0, ffn=23, norm_eps=3e-3,
               loss_chunk=100, tied=True),
    attention=dict(kind="gqa", heads=4, kv_heads=2, head_dim=6, rope_theta=1000, rope_interleaved=False,
                   document_mask=False),
    moe=dict(experts=6, shared=0, top_k=2, ffn=7, score="softmax", normalise=False, scaling=2.25,
             aux_loss=0.1, aux_scope="batch"),
    data=dict(sequence=12, shuffle=False, validation=0),
    train=dict(steps=10, batch=8, micro_batch=2, clip_norm=0),
    optimizer=dict(lr=5e-3, min_lr=5e-4, warmup_steps=0, decay_steps=0, beta1=0.9, beta2=0.8, eps=5e-3,
                   weight_decay=0.3))


# ---- the model ----


def attention_shapes(c, d):
    if c["kind"] == "gqa":
        wide, narrow = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        return dict(q_proj=(wide, d), k_proj=(narrow, d), v_proj=(narrow, d), o_proj=(d, wide))
    h, q, kv, nope, rope, v = (c[k] for k in ("heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim"))
    return dict(q_a_proj=(q, d), q_a_layernorm=(q,), q_b_proj=(h * (nope + rope), q),
                kv_a_proj_with_mqa=(kv + rope, d), kv_a_layernorm=(kv,), kv_b_proj=(h * (nope + v), kv),
                o_proj=(d, h * v))


def mlp_shapes(d, f):
    return dict(gate_proj=(f, d), up_proj=(f, d), down_proj=(d, f))


def shapes(rows):
    """{name: shape} under the names of Hugging Face's files."""
    m, e = rows["model"], rows["moe"]
    d, out = m["hidden"], {"model.embed_tokens": (m["vocab"], m["hidden"])}
    for i in range(m["layers"]):
        parts = {"input_layernorm": (d,), "post_attention_layernorm": (d,)}
        parts |= {f"self_attn.{k}": s for k, s in attention_shapes(rows["attention"], d).items()}
        if i < m["dense_layers"]:
            parts |= {f"mlp.{k}": s for k, s in mlp_shapes(d, m["ffn"]).items()}
        else:
            parts["mlp.gate"] = (e["experts"], d)
            for x in range(e["experts"]):
                parts |= {f"mlp.experts.{x}.{k}": s for k, s in mlp_shapes(d, e["ffn"]).items()}
            if e["shared"]:
                parts |= {f"mlp.shared_experts.{k}": s
                          for k, s in mlp_shapes(d, e["shared"] * e["ffn"]).items()}
        out |= {f"model.layers.{i}.{k}": s for k, s in parts.items()}
    out["model.norm"] = (d,)
    if not m.get("tied"):
        out["lm_head"] = (m["vocab"], d)
    return {f"{k}.weight": s for k, s in out.items()}


class Model:
    def __init__(self, rows, rng):
        self.rows, self.w, self.bias = rows, {}, {}
        std_of = {"gate": 0.6, "embed_tokens": 0.4 if rows["model"].get("tied") else 0.6}
        for name, shape in shapes(rows).items():
            std = std_of.get(name.split(".")[-2], 0.25)
            x = (std * rng.standard_normal(shape) + (len(shape) == 1)).astype(np.float32)
            self.w[name] = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        for i in range(rows["model"]["dense_layers"], rows["model"]["layers"]):
            b = rng.integers(-16, 17, rows["moe"]["experts"]) / 256
            self.bias[i] = torch.tensor(b * ("bias_rate" in rows["moe"]), dtype=torch.float64)

    def linear(self, name, x):
        return x @ self.w[f"{name}.weight"].T

    def norm(self, name, x):
        mean = x.pow(2).mean(-1, keepdim=True)
        return x / (mean + self.rows["model"]["norm_eps"]).sqrt() * self.w[f"{name}.weight"]

    def rotate(self, x):
        """(B, T, heads, d): pair j at position t turns by t theta^(-2j/d)."""
        c, d = self.rows["attention"], x.shape[-1]
        angle = torch.arange(x.shape[1])[:, None] * c["rope_theta"] ** (-torch.arange(0, d, 2).double() / d)
        pairs = x.unflatten(-1, (-1, 2)) if c["rope_interleaved"] else torch.stack(x.chunk(2, -1), -1)
        turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(1).double(), angle)[:, None]
        pairs = torch.view_as_real(turned)
        return pairs.flatten(-2) if c["rope_interleaved"] else torch.cat(pairs.unbind(-1), -1)

    def qkv(self, at, y):
        c = self.rows["attention"]
        heads = lambda x, n: x.unflatten(-1, (n, -1))
        if c["kind"] == "gqa":
            q = self.rotate(heads(self.linear(f"{at}.q_proj", y), c["heads"]))
            k = self.rotate(heads(self.linear(f"{at}.k_proj", y), c["kv_heads"]))
            v = heads(self.linear(f"{at}.v_proj", y), c["kv_heads"])
            return q, *(x.repeat_interleave(c["heads"] // c["kv_heads"], 2) for x in (k, v))
        q = self.norm(f"{at}.q_a_layernorm", self.linear(f"{at}.q_a_proj", y))
        q = heads(self.linear(f"{at}.q_b_proj", q), c["heads"])
        latent, shared = self.linear(f"{at}.kv_a_proj_with_mqa", y).split([c["kv_rank"], c["rope_dim"]], -1)
        kv = self.linear(f"{at}.kv_b_proj", self.norm(f"{at}.kv_a_layernorm", latent))
        k, v = heads(kv, c["heads"]).split([c["nope_dim"], c["v_dim"]], -1)
        shared = self.rotate(shared[:, :, None]).expand(-1, -1, c["heads"], -1)
        plain, turned = q.split([c["nope_dim"], c["rope_dim"]], -1)
        return torch.cat((plain, self.rotate(turned)), -1), torch.cat((k, shared), -1), v

    def attention(self, at, y, doc):
        q, k, v = self.qkv(at, y)
        place = torch.arange(y.shape[1])
        hidden = (place[None, None] > place[:, None]) | (place[None, None] < doc[:, :, None])
        score = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(q.shape[-1])
        p = score.masked_fill(hidden[:, None], -math.inf).softmax(-1)
        return self.linear(f"{at}.o_proj", torch.einsum("bhij,bjhd->bihd", p, v).flatten(2))

    def mlp(self, at, y):
        gate = self.linear(f"{at}.gate_proj", y)
        return self.linear(f"{at}.down_proj", gate * gate.sigmoid() * self.linear(f"{at}.up_proj", y))

    def route(self, layer, y):
        """Weights (B, T, E), 0 of experts not chosen; scores; and the least margin of each sequence."""
        c = dict(dict(groups=1, top_groups=1, group_score_top=1), **self.rows["moe"])
        logits = self.linear(f"model.layers.{layer}.mlp.gate", y)
        score = logits.sigmoid() if c["score"] == "sigmoid" else logits.softmax(-1)
        with torch.no_grad():
            choice = score + self.bias[layer]
            group = choice.unflatten(-1, (c["groups"], -1))
            best = group.sort(-1, descending=True).values[..., :c["group_score_top"]].sum(-1)
            kept, margin = chosen(best, c["top_groups"])
            choice = group.masked_fill(~kept[..., None], -math.inf).flatten(-2)
            taken, margin2 = chosen(choice, c["top_k"])
        weight = score * taken
        if c["normalise"]:
            weight = weight / weight.sum(-1, keepdim=True)
        return weight * c["scaling"], score, taken, torch.minimum(margin, margin2).amin(-1)

    def balance(self, score, taken):
        """The auxiliary loss of a layer."""
        c, b = self.rows["moe"], self.rows["train"]["micro_batch"]
        q = score / score.sum(-1, keepdim=True)
        if c["aux_scope"] == "batch":
            q, taken = (x.unflatten(0, (-1, b)).flatten(1, 2) for x in (q, taken))
        each = (taken.sum(1) * q.mean(1)).sum(-1) * c["experts"] / (c["top_k"] * q.shape[1])
        return c["aux_loss"] * each.mean()

    def forward(self, id, doc):
        """Logits, auxiliary loss, tokens by (MoE layer, expert), least margin of each sequence."""
        m, aux, load, margin = self.rows["model"], 0, [], torch.full((len(id),), math.inf).double()
        h = self.w["model.embed_tokens.weight"][id]
        for i in range(m["layers"]):
            at = f"model.layers.{i}"
            h = h + self.attention(f"{at}.self_attn", self.norm(f"{at}.input_layernorm", h), doc)
            y = self.norm(f"{at}.post_attention_layernorm", h)
            if i < m["dense_layers"]:
                h = h + self.mlp(f"{at}.mlp", y)
                continue
            weight, score, taken, least = self.route(i, y)
            aux = aux + self.balance(score, taken)
            load.append(taken.sum((0, 1)))
            margin = torch.minimum(margin, least)
            for e in range(self.rows["moe"]["experts"]):
                h = h + weight[..., e:e + 1] * self.mlp(f"{at}.mlp.experts.{e}", y)
            if self.rows["moe"]["shared"]:
                h = h + self.mlp(f"{at}.mlp.shared_experts", y)
        head = "model.embed_tokens" if m.get("tied") else "lm_head"
        return self.linear(head, self.norm("model.norm", h)), aux, torch.stack(load), margin


def chosen(x, n):
    """Which n are the largest along the last dim, and by how much the last of them."""
    if n == x.shape[-1]:
        return torch.ones_like(x, dtype=torch.bool), torch.full(x.shape[:-1], math.inf).double()
    order = x.sort(-1, descending=True)
    taken = torch.zeros_like(x, dtype=torch.bool).scatter(-1, order.indices[..., :n], True)
    return taken, order.values[..., n - 1] - order.values[..., n]


# ---- tokens ----


class Stream:
    """Documents end to end, cut into sequences whose targets are the next tokens."""

    def __init__(self, rows, rng):
        self.rng, self.vocab, self.t = rng, rows["model"]["vocab"], rows["data"]["sequence"]
        n = rows["train"]["steps"] * rows["train"]["batch"] * self.t + 1
        self.token, self.document = rng.integers(0, self.vocab, n), []
        while sum(self.document) < n:
            self.document.append(int(min(rng.integers(2, 2 * self.t), n - sum(self.document))))
        ends = np.cumsum(self.document)
        first = np.concatenate(([0], ends[:-1]))[np.searchsorted(ends, np.arange(n), side="right")]
        self.first = first if rows["attention"]["document_mask"] else np.zeros(n, dtype=np.int64)

    def sequences(self, first, n):
        at = np.arange(first * self.t, (first + n) * self.t).reshape(n, self.t)
        doc = np.maximum(self.first[at] - at[:, :1], 0)
        return (torch.tensor(x) for x in (self.token[at], self.token[at + 1], doc))

    def draw(self, model, i, hold):
        """Sequence i anew until its routes are MARGIN apart. hold: not its first token, which was the
        target of the step before. False: there is no such sequence among many."""
        at = i * self.t
        _, _, doc = self.sequences(i, 1)
        for _ in range(32):
            ids = self.rng.integers(0, self.vocab, (128, self.t))
            if hold:
                ids[:, 0] = self.token[at]
            with torch.no_grad():
                margin = model.forward(torch.tensor(ids), doc.expand(len(ids), -1))[3]
            good = (margin >= MARGIN).nonzero()
            if len(good):
                self.token[at:at + self.t] = ids[good[0]]
                return True
        return False


# ---- steps ----


def rate(rows, step):
    """Linear warm-up, then half a cosine (arXiv:1608.03983) from lr to min_lr."""
    o = rows["optimizer"]
    end = o["decay_steps"] or rows["train"]["steps"]
    if step <= o["warmup_steps"]:
        return o["lr"] * step / o["warmup_steps"]
    way = min(1.0, (step - o["warmup_steps"]) / (end - o["warmup_steps"]))
    return o["min_lr"] + 0.5 * (o["lr"] - o["min_lr"]) * (1 + math.cos(math.pi * way))


def optimizer_of(model):
    o, w = model.rows["optimizer"], model.w.values()
    groups = [dict(params=[p for p in w if p.ndim == 2], weight_decay=o["weight_decay"]),
              dict(params=[p for p in w if p.ndim == 1], weight_decay=0.0)]
    return torch.optim.AdamW(groups, betas=(o["beta1"], o["beta2"]), eps=o["eps"])


def one_step(model, optimizer, stream, step):
    rows, b = model.rows, model.rows["train"]["batch"]
    for i in range((step - 1) * b, step * b):
        if not stream.draw(model, i, hold=i == (step - 1) * b > 0):
            return None
    id, target, doc = stream.sequences((step - 1) * b, b)
    logits, aux, load, margin = model.forward(id, doc)
    assert margin.min() > 0.99 * MARGIN
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    (loss + aux).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.w.values(), rows["train"]["clip_norm"] or math.inf)
    for group in optimizer.param_groups:
        group["lr"] = rate(rows, step)
    optimizer.step()
    for count, bias in zip(load, model.bias.values()):
        fair = count.sum() - len(count) * count  # of the sign of mean - count, in whole numbers
        bias += rows["moe"].get("bias_rate", 0) * torch.sign(fair)
    return dict(loss=loss.item(), aux_loss=aux.item(), norm=norm.item(), lr=rate(rows, step),
                load=load.numpy())


def steps(rows, rng):
    """The arrays; None if the seed is not good."""
    model, stream = Model(rows, rng), Stream(rows, rng)
    optimizer = optimizer_of(model)
    now = lambda x: x.detach().numpy().copy()
    param = {k: [now(p)] for k, p in model.w.items()}
    state = {i: [now(b)] for i, b in model.bias.items()}
    records = []
    hugging_face(model, *stream.sequences(0, 2))
    for step in range(1, rows["train"]["steps"] + 1):
        records.append(one_step(model, optimizer, stream, step))
        if records[-1] is None:
            return None
        for i, b in model.bias.items():
            state[i].append(now(b))
        for k, p in model.w.items():
            if step in KEPT:
                param[k] += [now(x) for x in (p, optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"])]
    hugging_face(model, *stream.sequences(0, 2))
    if not well_clipped(rows, [r["norm"] for r in records]):
        return None
    out = dict(token=stream.token, document=np.array(stream.document))
    out |= {k: np.stack([np.asarray(r[k]) for r in records]) for k in records[0]}
    out |= {f"param/{k}": np.stack(v) for k, v in param.items()}
    if "bias_rate" in rows["moe"]:
        out |= {f"state/model.layers.{i}.mlp.gate.e_score_correction_bias": np.stack(v) for i, v in state.items()}
    return out


def well_clipped(rows, norms):
    """Some steps are clipped and some are not, none by a hair."""
    limit = rows["train"]["clip_norm"]
    clipped = sum(n > 1.01 * limit for n in norms)
    return limit == 0 or 3 <= clipped <= 7 and clipped + sum(n < 0.99 * limit for n in norms) == len(norms)


# ---- Hugging Face ----


def fused(weights):
    """Names in memory from names in files: the experts of a layer are one array."""
    out, experts = {}, {}
    for name, value in weights.items():
        layer, dot, rest = name.partition(".mlp.experts.")
        if dot:
            number, part, _ = rest.split(".")
            experts.setdefault(layer + dot, {})[int(number), part] = value
        else:
            out[name] = value
    for at, parts in experts.items():
        every = lambda kind: torch.stack([parts[e, kind] for e in range(len(parts) // 3)])
        out[f"{at}gate_up_proj"] = torch.cat((every("gate_proj"), every("up_proj")), 1)
        out[f"{at}down_proj"] = every("down_proj")
    return out


def hugging_face(model, id, target, doc):
    """Its DeepseekV3ForCausalLM gives the same logits; it rounds a part of them to float32."""
    m, a, e = (model.rows[k] for k in ("model", "attention", "moe"))
    if a["kind"] != "mla":
        return
    config = transformers.DeepseekV3Config(
        vocab_size=m["vocab"], hidden_size=m["hidden"], num_hidden_layers=m["layers"], intermediate_size=m["ffn"],
        max_position_embeddings=64, rms_norm_eps=m["norm_eps"], tie_word_embeddings=False,
        num_attention_heads=a["heads"], num_key_value_heads=a["heads"], q_lora_rank=a["q_rank"],
        kv_lora_rank=a["kv_rank"], qk_nope_head_dim=a["nope_dim"], qk_rope_head_dim=a["rope_dim"],
        v_head_dim=a["v_dim"], first_k_dense_replace=m["dense_layers"], n_shared_experts=e["shared"],
        moe_intermediate_size=e["ffn"], n_routed_experts=e["experts"], num_experts_per_tok=e["top_k"],
        n_group=e["groups"], topk_group=e["top_groups"], norm_topk_prob=e["normalise"],
        routed_scaling_factor=e["scaling"], rope_interleave=a["rope_interleaved"],
        rope_parameters=dict(rope_type="default", rope_theta=a["rope_theta"]))
    config._attn_implementation = config._experts_implementation = "eager"
    theirs = transformers.DeepseekV3ForCausalLM(config).double()
    state = fused({k: v.detach() for k, v in model.w.items()})
    state |= {f"model.layers.{i}.mlp.gate.e_score_correction_bias": b for i, b in model.bias.items()}
    theirs.load_state_dict(state)
    for module in theirs.modules():
        if hasattr(module, "variance_epsilon"):  # without this the latents' norms have 1e-6 whatever the config says
            module.variance_epsilon = m["norm_eps"]
    place = torch.arange(id.shape[1])
    hidden = (place[None, None] > place[:, None]) | (place[None, None] < doc[:, :, None])
    mask = torch.zeros(hidden.shape).double().masked_fill(hidden, -1e30)[:, None]
    with torch.no_grad():
        want = theirs(input_ids=id, attention_mask=mask, use_cache=False).logits
        have = model.forward(id, doc)[0]
    error = ((have - want).norm() / want.norm()).item()
    assert error < 1e-5, error


def make(folder, made_by):
    for name, rows, first_seed in (("mla", MLA, 0), ("gqa", GQA, 7)):
        for seed in range(first_seed, 100):
            arrays = steps(rows, np.random.default_rng(seed))
            if arrays is not None:
                break
        golden_format.write(f"{folder}/{name}.golden.zst", f"{made_by}, seed {seed}", arrays)
        with open(f"{folder}/{name}.yaml", "w") as f:
            yaml.safe_dump(rows, f, sort_keys=False)
        print(name, *(f"{k} " + " ".join(f"{x:.4g}" for x in arrays[k])
                      for k in ("loss", "aux_loss", "norm", "lr")), sep="\n  ")
