#!/usr/bin/env python3
"""torchtitan_step.py REQUEST: times training steps of TorchTitan 0.3.0. torchrun starts it on each GPU for tools/peers/peer.

REQUEST is a JSON object:
  model          a preset of ours that FAMILIES has
  layers, dense_layers, experts    if the row cuts the model
  sequence       tokens of a sequence
  batch          sequences a GPU in a step
  micro_batch    sequences a GPU in a pass; gradients are accumulated over batch / micro_batch passes
  checkpointing  none, selective or full
  eight_bits     parts with 8-bit products: linear, experts
  routing        random, zipf or even
  steps          the last half of them is timed, with one synchronisation at each end
  cpu            true: a tiny model of that family on the processor, to try this file without a GPU

Rank 0 prints `PEER {"tokens_per_s_per_gpu": ..., "gib": ...}`; gib is reserved memory of the fullest GPU.

TorchTitan runs as its authors advise: FSDP over all GPUs, torch.compile of model and loss, CUDA graphs, its fused SwiGLU,
its chunked loss, AdamW with f32 moments. What differs from 0.3.0 as shipped:
- Sequences have no documents, so attention is PyTorch's scaled_dot_product_attention: cuDNN's, else FlashAttention.
  0.3.0 keeps that class and no longer offers it to language models. gpt-oss has windows and sinks and keeps FlexAttention,
  which is not tuned first.
- Tokens are drawn here: no tokenizer, no data set, no checkpoint. Traces of its structured log are off.
- Its fused SwiGLU is a bf16 product. Parts that compute in 8 bits do without it.
- On PyTorch older than it wants: see torchtitan_compat.py.
"""
import importlib
import json
import os
import sys
import time
from dataclasses import dataclass, replace

import torchtitan_compat as compat

compat.end_with_parent()
compat.stand_in_for_absent_packages()

import torch  # noqa: E402

REQUEST = json.loads(sys.argv[1])
ON_CPU = bool(REQUEST.get("cpu"))
compat.prepare_torch(ON_CPU)

from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

GIB = 2.0**30
LOSS_CHUNKS = 8
TINY_VOCAB = 512
MLA_TINY = {"dim": 256, "n_heads": 4, "kv_lora_rank": 64, "dense_hidden_dim": 512, "moe_hidden_dim": 128, "num_experts": 8}
GQA_TINY = {"dim": 256, "n_heads": 2, "n_kv_heads": 1}
MOE_TINY = {"moe_hidden_dim": 128, "num_experts": 8}
# By our preset: TorchTitan's module and flavour, the function that builds its layers, and what makes them tiny.
FAMILIES = {
    "deepseek-v2-lite": ("deepseek_v3", "16B", "_build_dsv3_layers", MLA_TINY),
    "deepseek-v3": ("deepseek_v3", "671B", "_build_dsv3_layers", {**MLA_TINY, "q_lora_rank": 64, "num_experts": 16}),
    "llama3-8b": ("llama3", "8B", "_build_llama3_layers", {**GQA_TINY, "hidden_dim": 512}),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B", "_build_qwen3_moe_layers", {**GQA_TINY, **MOE_TINY}),
    "gpt-oss-20b": ("gpt_oss", "20b", "_build_gptoss_layers", {"dim": 256, "hidden_dim": 128, "num_experts": 8}),
}
CUTS = {"layers": "n_layers", "dense_layers": "n_dense_layers", "experts": "num_experts"}
CHECKPOINTING = {"none": None, "selective": SelectiveAC.Config(), "full": FullAC.Config()}
FUSED_SWIGLU = {"linear": "fused_swiglu", "experts": "fused_grouped_experts"}


class DrawnTokens(BaseDataLoader):
    """Tokens as `bench step` draws them: uniform, or by Zipf's law, where the logarithm of id + 1 is uniform."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        vocab: int
        zipf: bool
        positions: bool

    def __init__(self, config, *, dp_rank, seq_len, local_batch_size, **_others):
        self.config, self.rank, self.shape = config, dp_rank, (local_batch_size, seq_len)

    def ids(self, generator):
        rows, columns = self.shape
        if not self.config.zipf:
            return torch.randint(self.config.vocab, (rows, columns + 1), generator=generator)
        drawn = torch.rand(rows, columns + 1, generator=generator)
        return (float(self.config.vocab) ** drawn - 1).long().clamp(0, self.config.vocab - 1)

    def __iter__(self):
        generator = torch.Generator().manual_seed(1234 + self.rank)
        positions = torch.arange(self.shape[1]).expand(self.shape)
        while True:
            ids = self.ids(generator)
            inputs = {"input": ids[:, :-1].contiguous()}
            if self.config.positions:
                inputs["positions"] = positions.clone()
            yield inputs, ids[:, 1:].contiguous()

    def state_dict(self):
        return {}

    def load_state_dict(self, _state):
        pass


class NoTokenizer(BaseTokenizer):
    """Trainer wants one; nothing here is text."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config=None, **_others):  # build() names its argument
        super().__init__()

    def encode(self, *_arguments, **_options):
        return []

    def decode(self, *_arguments, **_options):
        return ""

    def get_vocab_size(self):
        return 0


class TimedTrainer(Trainer):
    """TorchTitan's trainer with a clock of its own over the last half of its steps."""

    def train_step(self, data_iterator):
        steps = self.config.training.steps
        first_timed = steps - steps // 2 + 1
        if self.step == first_timed:
            synchronise()
            self.started = time.perf_counter()
        super().train_step(data_iterator)
        if self.step == steps:
            synchronise()
            self.finish((steps - first_timed + 1) / (time.perf_counter() - self.started))

    def finish(self, steps_a_second):
        """Prints the result. The process ends here: its teardown takes seconds that the next try needs."""
        training = self.config.training
        tokens = training.local_batch_size * training.seq_len * self.gradient_accumulation_steps
        reserved = 0 if ON_CPU else torch.cuda.max_memory_reserved()
        fullest = torch.tensor(float(reserved), device=self.device)
        torch.distributed.all_reduce(fullest, torch.distributed.ReduceOp.MAX)
        if torch.distributed.get_rank() == 0:
            found = {"tokens_per_s_per_gpu": round(tokens * steps_a_second, 1), "gib": round(fullest.item() / GIB, 2)}
            print("PEER " + json.dumps(found), flush=True)
        torch.distributed.barrier()
        sys.stdout.flush()
        os._exit(0)


def synchronise():
    if not ON_CPU:
        torch.cuda.synchronize()


def converters():
    """What puts 8-bit products in: rowwise scaled linear layers but for head and router, and grouped experts."""
    from torchtitan.components.quantization import Float8GroupedExpertsConverter, Float8LinearConverter
    made = {"linear": Float8LinearConverter.Config(filter_fqns=["lm_head", "router.gate"], recipe_name="rowwise",
                                                   model_compile_enabled=not ON_CPU),
            "experts": Float8GroupedExpertsConverter.Config(model_compile_enabled=not ON_CPU)}
    return [made[part] for part in REQUEST["eight_bits"]] or None


def model_spec():
    """TorchTitan's model of this row, cut as the row cuts it."""
    folder, flavour, builder, tiny = FAMILIES[REQUEST["model"]]
    family = importlib.import_module("torchtitan.models." + folder)
    changes = {name: REQUEST[key] for key, name in CUTS.items() if key in REQUEST}
    if ON_CPU:
        changes = {**changes, **tiny}
    build = getattr(family, builder)
    setattr(family, builder, lambda **options: build(**{**options, **changes}))
    windows = folder == "gpt_oss"
    spec = family.model_registry(flavour, attn_backend="flex" if windows else "varlen", converters=converters())
    if windows:
        FlexAttention._compiled_flex_attn = torch.compile(flex_attention)
    else:
        for layer in spec.model.layers:
            layer.attention.inner_attention = ScaledDotProductAttention.Config()
    if ON_CPU:
        shrink_ends(spec.model, changes["dim"])
    return replace(spec, state_dict_adapter=None)


def shrink_ends(model, width):
    """Embedding, last norm and head of a tiny model."""
    model.dim = model.norm.normalized_shape = model.tok_embeddings.embedding_dim = model.lm_head.in_features = width
    model.vocab_size = model.tok_embeddings.num_embeddings = model.lm_head.out_features = TINY_VOCAB


def trainer_config(spec):
    ranks, steps = int(os.environ["WORLD_SIZE"]), REQUEST["steps"]
    compiled = [] if ON_CPU else ["model", "loss"]
    loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec))
    config = Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=loss, num_chunks=LOSS_CHUNKS),
        model_spec=spec,
        dump_folder="torchtitan",
        tokenizer=NoTokenizer.Config(),
        metrics=MetricsProcessor.Config(log_freq=steps, disable_color_printing=True),
        dataloader=DrawnTokens.Config(vocab=spec.model.vocab_size, zipf=REQUEST["routing"] == "zipf",
                                      positions=spec.name == "gpt_oss"),
        optimizer=default_adamw(lr=2.2e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=steps),
        training=TrainingConfig(local_batch_size=REQUEST["micro_batch"], global_batch_size=REQUEST["batch"] * ranks,
                                seq_len=REQUEST["sequence"], steps=steps, disable_cuda_graphs=ON_CPU),
        parallelism=ParallelismConfig(spmd_backend=compat.spmd_backend(ranks)),
        checkpoint=CheckpointManager.Config(enable=False),
        activation_checkpoint=CHECKPOINTING[REQUEST["checkpointing"]],
        compile=CompileConfig(enable=bool(compiled), components=compiled or ["loss"]))
    config.debug.moe_force_load_balance = REQUEST["routing"] == "even"
    config.debug.enable_structured_logging = False
    if ON_CPU:
        config.optimizer.implementation = "foreach"
    config.override.imports += ["torchtitan.overrides.fused_swiglu." + name for part, name in FUSED_SWIGLU.items()
                                if part not in REQUEST["eight_bits"]]
    return config


def main():
    compat.prepare_torchtitan(ON_CPU)
    init_logger()
    TimedTrainer(trainer_config(model_spec())).train()


if __name__ == "__main__":
    main()
