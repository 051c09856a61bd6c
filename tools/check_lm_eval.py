#!/usr/bin/env python3
"""`switchyard serve` beside transformers, as lm-evaluation-harness sees them.

    check_lm_eval.py PROGRAM FOLDER

needs the Python packages lm_eval[api], transformers, torch and accelerate.

For each of three families a small model is trained for some steps, exported with `convert to-hf`, and served. Then
the harness runs three tasks on both, unchanged: multiple choice, the likelihood of whole documents, and text that is
written until a stop. Each figure of both must agree within 1e-3; of what is written every byte must agree. The choices
are also asked with `eval --choices`, which must give the harness' accuracies.

Prints a line a model and ends with `N passed, M failed, 0 skipped`; exit code 1 if any failed.
"""
import json
import os
import random
import re
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import lm_eval  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

LIMIT = 1e-3
CONTEXT = 128
GQA = ["attention.kind=gqa", "attention.kv_heads=2", "attention.head_dim=16", "attention.rope_interleaved=false",
       "model.dense_layers=0", "moe.shared=0", "moe.normalise=true"]
FAMILIES = {"deepseek_v2": [], "qwen3_moe": GQA + ["attention.qk_norm=rms"], "mixtral": GQA}
CONFIG = """
run: {dir: %s}
data: {sources: [{name: text, path: text}], tokenizer: tokenizer.json, sequence: 128, validation: 0.1}
model: {vocab: 512, hidden: 64, layers: 3, dense_layers: 1, ffn: 128}
attention: {heads: 4, kv_rank: 16, nope_dim: 16, rope_dim: 8, v_dim: 16}
moe: {experts: 8, top_k: 2, ffn: 64}
train: {steps: 80, batch: 4, micro_batch: 2}
optimizer: {lr: 3e-3, min_lr: 3e-4, warmup_steps: 5}
"""
TASKS = {
    "yard_choice": """
task: yard_choice
dataset_path: json
dataset_kwargs: {data_files: {test: choice.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: ""
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
""",
    "yard_documents": """
task: yard_documents
dataset_path: json
dataset_kwargs: {data_files: {test: documents.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "yard_until": """
task: yard_until
dataset_path: json
dataset_kwargs: {data_files: {test: documents.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{begin}}"
doc_to_target: "{{end}}"
generation_kwargs: {until: [";", "}"], max_gen_toks: 24, do_sample: false, temperature: 0}
metric_list: [{metric: exact_match}]
""",
}


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def write_data(program, sources):
    """Text, tokenizer, shards, and questions about the text: which line follows?"""
    rng = random.Random(1)
    texts = [open(path, encoding="utf-8").read() for path in sources]
    with open("text.jsonl", "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
    run(program, "data", "tokenizer", "train", "--vocab", "512", "--out", "tokenizer.json", "text.jsonl")
    run(program, "data", "prepare", "--tokenizer", "tokenizer.json", "--out", "text", "text.jsonl")
    lines = [line for t in texts for line in t.split("\n") if 20 < len(line) < 60 and line.isascii()]
    with open("choice.jsonl", "w", encoding="utf-8") as f:
        for at in rng.sample(range(len(lines) - 1), 40):
            choices = ["\n" + lines[at + 1]] + ["\n" + line for line in rng.sample(lines, 3)]
            rng.shuffle(choices)
            f.write(json.dumps({"prompt": lines[at], "choices": choices,
                                "answer": choices.index("\n" + lines[at + 1])}) + "\n")
    with open("documents.jsonl", "w", encoding="utf-8") as f:
        for i in range(12):
            at = rng.randrange(len(texts[i % len(texts)]) - 700)
            text = texts[i % len(texts)][at:at + 40 + 50 * i].strip()
            f.write(json.dumps({"text": text, "begin": text[:30], "end": text[30:60]}) + "\n")
    os.makedirs("tasks", exist_ok=True)
    for name, text in TASKS.items():
        with open(f"tasks/{name}.yaml", "w", encoding="utf-8") as f:
            f.write(text)


def served(program, run_dir):
    """The server's process and the address that it says."""
    server = subprocess.Popen([program, "serve", run_dir, "--port", "0", "--name", "yard", "--context", str(CONTEXT + 1)],
                              stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "http://" in line:
            return server, line.split(" at ")[1].split(",")[0]
    raise SystemExit(f"the server of {run_dir} did not start")


def evaluate(model, arguments):
    out = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=list(TASKS), batch_size=4,
                                  task_manager=TaskManager(include_path="tasks"), bootstrap_iters=0,
                                  device="cpu", log_samples=True)
    figures = {f"{task} {metric.split(',')[0]}": value for task, row in out["results"].items()
               for metric, value in row.items() if isinstance(value, float) and "stderr" not in metric}
    samples = {task: {s["doc_id"]: s["filtered_resps"] for s in rows} for task, rows in out["samples"].items()}
    return figures, samples


def differences(ours, theirs):
    """What differs: figures, the likelihood of each choice and document, each written text."""
    found = [f"{name}: {value:.6g}, {theirs[0].get(name)}" for name, value in ours[0].items()
             if not abs(value - theirs[0].get(name, float("nan"))) <= LIMIT * max(1, abs(value))]
    for task, rows in ours[1].items():
        for number, mine in rows.items():
            other = theirs[1][task][number]
            if task == "yard_until":
                same = mine == other
            elif task == "yard_choice":
                same = all(abs(a[0] - b[0]) <= LIMIT * max(1, abs(b[0])) and a[1] == b[1]
                           for a, b in zip(mine, other, strict=True))
            else:
                same = abs(mine[0] - other[0]) <= LIMIT * abs(other[0])
            if not same:
                found.append(f"{task} {number}: {mine}, {other}")
    return found


def choices(program, run_dir, theirs):
    """`eval --choices` beside the harness' figures, which it prints with four digits."""
    out = subprocess.run([program, "eval", run_dir, "--choices", "choice.jsonl"], check=True,
                         capture_output=True, text=True).stdout
    have = dict(re.findall(r"(acc\w*) ([\d.]+)", out))
    return [f"eval --choices {name}: {have[name]}, {theirs[f'yard_choice {name}']}"
            for name in ("acc", "acc_norm", "acc_bytes")
            if not abs(float(have[name]) - theirs[f"yard_choice {name}"]) <= 1e-4]


def check_family(program, name, settings):
    with open(f"{name}.yaml", "w", encoding="utf-8") as f:
        f.write(CONFIG % name)
    run(program, "train", f"{name}.yaml", *settings)
    run(program, "convert", "to-hf", name, f"{name}-hf")
    have = json.load(open(f"{name}-hf/config.json", encoding="utf-8"))["model_type"]
    if have != name:
        return [f"the exported family is {have}"], {}
    server, address = served(program, name)
    try:
        # The harness takes one token off the length for the token that a server writes, and for whole documents another
        # one. So both cut them into the same windows of CONTEXT tokens.
        ours = evaluate("local-completions",
                        f"model=yard,base_url={address},tokenizer_backend=huggingface,tokenizer={name}-hf,"
                        f"max_length={CONTEXT + 2},num_concurrent=4")
    finally:
        server.terminate()
    if server.wait() != 0:
        return [f"the server ended with {server.returncode}"], {}
    theirs = evaluate("hf", f"pretrained={name}-hf,max_length={CONTEXT},dtype=float32")
    return differences(ours, theirs) + choices(program, name, theirs[0]), ours[0]


def main():
    program = os.path.abspath(sys.argv[1])
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "engine", "train")
    sources = [os.path.join(root, f) for f in sorted(os.listdir(root)) if f.endswith(".c")]
    os.makedirs(sys.argv[2], exist_ok=True)
    os.chdir(sys.argv[2])
    write_data(program, sources)
    failed = 0
    for name, settings in FAMILIES.items():
        found, figures = check_family(program, name, settings)
        failed += found != []
        shown = ", ".join(f"{k} {v:.4f}" for k, v in figures.items())
        print(f"{'FAILED' if found else 'ok    '} {name}: {shown}", *found[:20], sep="\n       ", flush=True)
    print(f"{len(FAMILIES) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
