"""Multi-token prediction behind tiny models by Hugging Face, for make_golden.py.

transformers has no such modules, so they are written here from the paper (DeepSeek-V3, arXiv:2412.19437,
section 2.2) around its decoder layers. The model's final norm stands before the first module and each
module's own norm before the next one and its loss; the embedding comes first in the product, as in the
published weights. NAME.golden.zst and NAME.yaml are golden_models.py's, and beside them:

    next_id/K, next_target/K (B, T)     of depth K: the token K further on, the one behind it
    next_mean (depths)                  mean losses; gradients are of mean + loss / depths * their sum
"""
import numpy as np
import torch
import torch.nn.functional as F
import yaml
from torch import nn

import golden_format
import golden_models as gm

WEIGHT = 0.3


class Module(nn.Module):
    def __init__(self, model, index):
        super().__init__()
        config = model.config
        layer = type(model.model.layers[-1])(config, index)
        for name, part in layer.named_children():  # its names are those of the module's in files
            setattr(self, name, part)
        self.layer = [layer]
        norm = type(model.model.norm)
        self.enorm = norm(config.hidden_size, config.rms_norm_eps)
        self.hnorm = norm(config.hidden_size, config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.shared_head = nn.Module()
        self.shared_head.norm = norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, row, y, mask, position):
        h = self.eh_proj(torch.cat([self.enorm(row), self.hnorm(y)], -1))
        return self.shared_head.norm(
            self.layer[0](h, attention_mask=mask, position_embeddings=position))


class Deep(nn.Module):
    """A model and its modules, which are its last layers in files."""

    def __init__(self, model, depths):
        super().__init__()
        first = model.config.num_hidden_layers
        self.main, self.first = model, first
        self.more = nn.ModuleList(Module(model, first + k) for k in range(depths))

    def file_name(self, name):
        if name.startswith("main."):
            return name[5:]
        k, rest = name[5:].split(".", 1)
        return f"model.layers.{self.first + int(k)}.{rest}"

    def run(self, id, doc, next_id):
        """Logits of all depths, and the sorted experts of every token in every MoE layer."""
        chosen, last = [], []
        hooks = [m.register_forward_hook(lambda m, i, o: chosen.append(o[2].sort(-1).values))
                 for name, m in self.named_modules() if name.endswith("mlp.gate")]
        hooks.append(self.main.model.norm.register_forward_hook(lambda m, i, o: last.append(o)))
        mask = gm.mask_of(doc)
        logits = [self.main(input_ids=id, attention_mask=mask, use_cache=False).logits]
        y = last[0]
        position = self.main.model.rotary_emb(y, torch.arange(gm.TOKENS)[None])
        for module, ids in zip(self.more, next_id):
            y = module(self.main.model.embed_tokens(ids), y, mask, position)
            logits.append(self.main.lm_head(y))
        for hook in hooks:
            hook.remove()
        return logits, chosen


def steady(model, given, rng):
    _, want = model.run(*given)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    same = True
    for _ in range(10):
        model.load_state_dict({k: v * (1 + 1e-3 * torch.tensor(rng.standard_normal(tuple(v.shape)), dtype=v.dtype))
                               for k, v in state.items()})
        same = same and all(torch.equal(a, b) for a, b in zip(want, model.run(*given)[1]))
    model.load_state_dict(state)
    return same


def batch_of(rng, depths):
    """Rows of one token more than there are inputs; the rules are those of corpus/shard/loader.h."""
    row = rng.integers(0, gm.VOCAB, (gm.SEQUENCES, gm.TOKENS + 1))
    start = np.array([[max(s for s in starts if s <= i) for i in range(gm.TOKENS + 1)]
                      for starts in gm.DOCUMENTS])
    id, target = row[:, :-1], row[:, 1:]
    next_id = np.zeros((depths, *id.shape), int)
    next_target = np.full((depths, *id.shape), -1)
    for k in range(1, depths + 1):
        for b in range(gm.SEQUENCES):
            for t in range(gm.TOKENS):
                if t + k <= gm.TOKENS:
                    next_id[k - 1, b, t] = row[b, t + k]
                if t + 1 + k <= gm.TOKENS and start[b, t + 1 + k] <= t:
                    next_target[k - 1, b, t] = row[b, t + 1 + k]
    return [torch.tensor(x) for x in (id, target, start[:, :-1], next_id, next_target)]


def one_model(build, depths, seed):
    cls, config, rows = build()
    config._attn_implementation = config._experts_implementation = "eager"
    rng = np.random.default_rng(seed)
    model = Deep(cls(config), depths).float().train()
    gm.randomise(model, rng)
    id, target, doc, next_id, next_target = batch_of(rng, depths)
    if not steady(model, (id, doc, next_id), rng):
        return None, rows
    logits, _ = model.run(id, doc, next_id)
    loss = F.cross_entropy(logits[0].flatten(0, 1), target.flatten(), reduction="none")
    deeper = torch.stack([F.cross_entropy(l.flatten(0, 1), t.flatten(), ignore_index=-1)
                          for l, t in zip(logits[1:], next_target)])
    (loss.mean() + WEIGHT * deeper.mean()).backward()
    arrays = dict(id=id, target=target, doc=doc, loss=loss.view(target.shape), mean=loss.mean().view(1),
                  logits=logits[0][0], next_mean=deeper)
    for k in range(depths):
        arrays[f"next_id/{k + 1}"], arrays[f"next_target/{k + 1}"] = next_id[k], next_target[k]
    for name, p in model.named_parameters():
        for kind, value in (("weight", p), ("grad", p.grad)):
            for part, array in gm.by_file_name(model.file_name(name), value):
                if not array.any():
                    return None, rows  # an expert without a token
                arrays[f"{kind}/{part}"] = array
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            arrays[f"state/{model.file_name(name)}"] = b
    rows["mtp"] = dict(layers=depths, loss=WEIGHT)
    return {k: v.detach().numpy() for k, v in arrays.items()}, rows


def make(folder, made_by):
    for name, build, depths in (("deepseek_v3_mtp", gm.deepseek_v3, 2), ("glm4_moe_mtp", gm.glm4_moe, 1)):
        for seed in range(200):
            arrays, rows = one_model(build, depths, seed)
            if arrays is not None:
                break
        golden_format.write(f"{folder}/{name}.golden.zst", f"{made_by}, seed {seed}", arrays)
        with open(f"{folder}/{name}.yaml", "w") as f:
            yaml.safe_dump(gm.settings(name, rows), f, sort_keys=False)
