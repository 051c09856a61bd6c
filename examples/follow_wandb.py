#!/usr/bin/env python3
"""Sends the figures of a run to Weights & Biases: follow_wandb.py RUN [--once]

Needs `pip install wandb`. WANDB_MODE=offline writes a folder wandb/offline-run-* that `wandb sync` sends later;
WANDB_PROJECT, WANDB_ENTITY and WANDB_DIR are wandb's own. RUN/follow-wandb.json has how far it came and the run's id: the
next start continues there.
"""
import os
import secrets

import wandb
import yaml

from follow_metrics import arguments, remembered, send


def main():
    run, once = arguments()
    state = remembered(run, "wandb")
    state.setdefault("id", secrets.token_hex(4))
    state.setdefault("rows", 0)
    with open(f"{run}/config.yaml", encoding="utf-8") as f:
        config = yaml.safe_load(f)
    with wandb.init(id=state["id"], resume="allow", name=os.path.basename(run), config=config) as page:
        page.define_metric("*", step_metric="step")
        # wandb wants a number that only grows
        send(run, "wandb", state, once, lambda step, row: page.log({"step": step, **row}, step=state["rows"]))
    print(f"{run}: {state['rows']} rows in run {state['id']} of wandb")


if __name__ == "__main__":
    main()
