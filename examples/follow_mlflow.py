#!/usr/bin/env python3
"""Sends the figures of a run to MLflow: follow_mlflow.py RUN [--once]

Needs `pip install mlflow-skinny`, or mlflow. MLFLOW_TRACKING_URI says where to: a server, or without a network
sqlite:///mlflow.db; MLFLOW_EXPERIMENT_NAME is MLflow's own. RUN/follow-mlflow.json has how far it came and the run's id:
the next start continues there.
"""
import os
import time

import mlflow
import yaml
from mlflow.entities import Metric

from follow_metrics import arguments, remembered, send


def settings(run):
    """section.key -> value, as MLflow has parameters."""
    with open(f"{run}/config.yaml", encoding="utf-8") as f:
        sections = yaml.safe_load(f)
    return {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}


def main():
    run, once = arguments()
    state = remembered(run, "mlflow")
    state.setdefault("rows", 0)
    with mlflow.start_run(run_id=state.get("id"), run_name=os.path.basename(run)) as page:
        if "id" not in state:
            state["id"] = page.info.run_id
            mlflow.log_params(settings(run))

        def log(step, row):
            now = int(time.time() * 1000)
            mlflow.MlflowClient().log_batch(state["id"], [Metric(key, value, now, step) for key, value in row.items()])

        send(run, "mlflow", state, once, log)
    print(f"{run}: {state['rows']} rows in run {state['id']} of MLflow")


if __name__ == "__main__":
    main()
