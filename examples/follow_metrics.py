#!/usr/bin/env python3
"""The figures of a run as they are written: follow_metrics.py RUN [--once]

Prints a JSON object for each step and evaluation in RUN/metrics.jsonl: its numbers, named KEY or KEY/PART. It waits for
more until SIGINT or SIGTERM; --once ends at the end of the file. follow_wandb.py and follow_mlflow.py import it.
"""
import json
import os
import signal
import sys
import time


def arguments():
    """(RUN, whether to stop at the end of the file). SIGTERM ends a follower as Ctrl-C does."""
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--once"]):
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} RUN [--once]")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return sys.argv[1].rstrip("/"), sys.argv[2:] == ["--once"]


def figures(line, layers):
    """The numbers of a line, by name. null stands for what is not finite and is left out."""
    out, prefix = {}, "eval_" if line["kind"] == "eval" else ""
    for key, value in line.items():
        if key == "expert_load":
            for layer, load in zip(layers, value):
                out[f"expert_load_max/layer_{layer}"] = max(load) * len(load) / max(1, sum(load))
                out[f"expert_load_min/layer_{layer}"] = min(load) * len(load) / max(1, sum(load))
        elif key == "router_z":
            out.update({f"router_z/layer_{layer}": z for layer, z in zip(layers, value) if z is not None})
        elif key == "domains":  # null: the source held nothing out
            out.update({f"source_eval_loss/{name}": d["loss"] for name, d in value.items() if d and d["loss"] is not None})
        elif isinstance(value, (int, float)) and key != "step":
            out[prefix + key] = +value  # true is 1
        elif isinstance(value, dict):  # memory_bytes, domain_tokens, domain_epochs
            out.update({f"{key}/{name}": number for name, number in value.items() if isinstance(number, (int, float))})
    return out


def follow(run, state, once):
    """Yields (step, figures) of the lines after `state`, which it updates: `at` bytes were read, `step` and `eval` were the
    last ones, `layers` have experts. A resumed run writes the steps since its checkpoint again: they come once."""
    with open(os.path.join(run, "metrics.jsonl"), "rb") as f:
        if os.fstat(f.fileno()).st_size < state.setdefault("at", 0):
            sys.exit(f"{f.name} is shorter than the {state['at']} bytes already read: another run began there. "
                     f"To follow that one, delete {run}/follow-*.json")
        while True:
            f.seek(state["at"])
            text = f.readline()
            if not text.endswith(b"\n"):  # the end, or a line that is being written
                if once:
                    return
                time.sleep(1)
                continue
            state["at"] = f.tell()
            try:
                line = json.loads(text)
            except ValueError:  # what a killed run left
                continue
            if line["kind"] == "start":
                state["layers"] = line["moe_layers"]
            elif line["kind"] in ("step", "eval") and line["step"] > state.get(line["kind"], -1):
                state[line["kind"]] = line["step"]
                yield line["step"], figures(line, state["layers"])


def remembered(run, what):
    """The state that `remember` wrote, else an empty one."""
    path = f"{run}/follow-{what}.json"
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def remember(run, what, state):
    with open(f"{run}/follow-{what}.json.tmp", "w", encoding="utf-8") as f:
        json.dump(state, f)
    os.replace(f.name, f.name.removesuffix(".tmp"))


def send(run, what, state, once, log):
    """Calls log(step, row) for each new row and remembers that it went, until Ctrl-C, or with `once` the last row."""
    try:
        for step, row in follow(run, state, once):
            log(step, row)
            state["rows"] += 1
            remember(run, what, state)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    folder, stop = arguments()
    try:
        for step, row in follow(folder, {}, stop):
            print(json.dumps({"step": step, **row}), flush=True)
    except KeyboardInterrupt:
        pass
