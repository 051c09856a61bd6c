"""Fifty steps of transformers' tiny models, for make_golden.py and check_convert.py.

Gradients are autograd's of the model's own class, the update is torch.optim.AdamW behind
clip_grad_norm_, in float64 from float32 weights (parts of some classes compute in float32 whatever
the model's type is). make() writes tests/golden/steps/NAME.golden.zst and NAME.yaml for the models of
golden_models.py; the weights at the start are those of tests/golden/model/NAME.golden.zst. Arrays:

    token (S B T + 1), document (D)   the stream of training tokens, and lengths of its documents;
                                      step s takes sequences [B s, B s + B), each T tokens
    loss, norm, lr (S)                of each step; the norm before clipping

A token is 3 times the one before it and 7, or, one time in five, any: so the loss falls. No rounding may
change a route: a sequence is drawn again until no token's experts change when the weights of its
step do, for goldens by one part in a hundred, so that most are the same in bf16. The router's bias of
DeepSeek-V3 moves as its report says (arXiv:2412.19437), since transformers leaves it alone.
"""
import numpy as np
import torch
import torch.nn.functional as F
import yaml

import golden_format
import golden_models
import golden_trajectory

TOKENS = 16
ROWS = dict(
    data=dict(sequence=TOKENS, shuffle=False, validation=0),
    train=dict(steps=50, batch=8, micro_batch=1, clip_norm=1.0),
    optimizer=dict(lr=1e-3, min_lr=1e-4, warmup_steps=5, decay_steps=50, beta1=0.9, beta2=0.95, eps=1e-8,
                   weight_decay=0.1))


class Stream(golden_trajectory.Stream):
    """Where a sequence's routes are steady is found by moving the weights."""

    def sentence(self, n):
        """n sequences of the rule; the first token is any."""
        ids = self.rng.integers(0, self.vocab, (n, self.t))
        for i in range(1, self.t):
            rule = (3 * ids[:, i - 1] + 7) % self.vocab
            ids[:, i] = np.where(self.rng.random(n) < 0.8, rule, ids[:, i])
        return ids

    def find(self, model, first, b, documents):
        """Draws b sequences. False: there is none for some place."""
        left, doc = list(range(b)), list(self.sequences(first, b))[2]
        for _ in range(64):
            place = np.repeat(left, self.candidates)
            ids = self.sentence(len(place))
            if first > 0:  # the target of the step before
                ids[place == 0, 0] = self.token[first * self.t]
            good = steady(model, torch.tensor(ids), doc[place] if documents else None, self.rng, self.moved)
            for i in [i for i in left if good[place == i].any()]:
                at = (first + i) * self.t
                self.token[at:at + self.t] = ids[place == i][good[place == i].nonzero()[0, 0]]
                left.remove(i)
            if not left:
                return True
        return False


def chosen_of(model, id, doc):
    """Logits, and the experts that every token takes, (layers, sequences, tokens, top_k)."""
    logits, chosen = golden_models.run(model, id, doc)
    return logits, [c.view(*id.shape, -1) for c in chosen]


def steady(model, id, doc, rng, moved):
    """Of each sequence: do all tokens keep their experts, wherever weights move by such a part?"""
    good, state = torch.ones(len(id), dtype=torch.bool), [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        _, want = chosen_of(model, id, doc)
        for _ in range(3):
            for p, was in zip(model.parameters(), state):
                p.copy_(was * (1 + moved * torch.tensor(rng.standard_normal(tuple(p.shape)))))
            _, have = chosen_of(model, id, doc)
            for a, b in zip(want, have):
                good &= (a == b).flatten(1).all(1)
        for p, was in zip(model.parameters(), state):
            p.copy_(was)
    return good


def decays(name, p):
    """Matrices, experts' as well, which are stacked; no convolution."""
    return p.ndim >= 2 and not name.endswith(("bias", "conv1d.weight"))


def optimizer_of(model, o):
    named = list(model.named_parameters())
    groups = [dict(params=[p for n, p in named if decays(n, p) == yes], weight_decay=o["weight_decay"] * yes)
              for yes in (True, False)]
    return torch.optim.AdamW(groups, betas=(o["beta1"], o["beta2"]), eps=o["eps"])


def move_biases(model, chosen, rate):
    biases = [b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    for bias, taken in zip(biases, chosen):
        count = torch.bincount(taken.flatten(), minlength=len(bias))
        bias += np.float32(rate) * torch.sign(count.sum() - len(bias) * count)


def one_step(model, optimizer, stream, rows, step, documents):
    b = rows["train"]["batch"]
    if not stream.find(model, (step - 1) * b, b, documents):
        return None
    id, target, doc = stream.sequences((step - 1) * b, b)
    logits, chosen = chosen_of(model, id, doc if documents else None)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), rows["train"]["clip_norm"])
    for group in optimizer.param_groups:
        group["lr"] = golden_trajectory.rate(rows, step)
    optimizer.step()
    move_biases(model, chosen, rows.get("moe", {}).get("bias_rate", 0))
    return dict(loss=loss.item(), norm=norm.item(), lr=golden_trajectory.rate(rows, step))


def steps(model, rows, rng, moved, candidates):
    """The arrays; None if a sequence without doubtful routes is not found. The model is trained."""
    model = model.double().train()
    documents = rows["attention"]["document_mask"]
    stream, optimizer = Stream(rows, rng), optimizer_of(model, rows["optimizer"])
    stream.moved, stream.candidates = moved, candidates
    records = []
    for step in range(1, rows["train"]["steps"] + 1):
        records.append(one_step(model, optimizer, stream, rows, step, documents))
        if records[-1] is None:
            return None
    return dict(token=stream.token, document=np.array(stream.document),
                **{k: np.array([r[k] for r in records]) for k in records[0]})


def with_weights(build, path):
    """The model with the weights of its golden file, which has experts one by one."""
    cls, config, rows = build()
    config._attn_implementation = config._experts_implementation = "eager"
    model, golden = cls(config).float(), golden_format.read(path)
    fused = config.model_type == "gpt_oss"
    with torch.no_grad():
        for name, p in model.named_parameters():
            for part, value in golden_models.by_file_name(name, p, fused):
                value.copy_(torch.tensor(golden[f"weight/{part}"]))
        for name, b in model.named_buffers():
            if f"state/{name}" in golden:
                b.copy_(torch.tensor(golden[f"state/{name}"]))
    return model, rows


def make(folder, made_by):
    for build in golden_models.MODELS:
        name = build.__name__
        for seed in range(20):
            model, rows = with_weights(build, f"{folder}/../model/{name}.golden.zst")
            rows = golden_models.settings(name, rows)
            rows["run"]["threads"] = 1
            for section, values in ROWS.items():
                rows[section] = dict(values)
            arrays = steps(model, rows, np.random.default_rng(seed), 1e-2, 16)
            if arrays is not None:
                break
        golden_format.write(f"{folder}/{name}.golden.zst", f"{made_by}, seed {seed}", arrays)
        with open(f"{folder}/{name}.yaml", "w") as f:
            yaml.safe_dump(rows, f, sort_keys=False)
        print(name, seed, *(f"{x:.4g}" for x in arrays["loss"][::7]), flush=True)
