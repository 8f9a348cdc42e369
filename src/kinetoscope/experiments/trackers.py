"""Environment variables that disable experiment trackers, as docs/try.md lists them."""

from collections.abc import Mapping

TRACKERS: dict[str, dict[str, str]] = {
    "Weights & Biases": {"WANDB_MODE": "disabled", "WANDB_DISABLED": "true"},
    "MLflow": {"DISABLE_MLFLOW_INTEGRATION": "TRUE", "MLFLOW_TRACKING_URI": "file://{folder}/mlflow"},
    "Comet": {"COMET_MODE": "DISABLED", "COMET_DISABLE_AUTO_LOGGING": "1"},
    "Neptune": {"NEPTUNE_MODE": "debug"},
    "ClearML": {"CLEARML_OFFLINE_MODE": "1"},
    "SwanLab": {"SWANLAB_MODE": "disabled"},
}
"""The variables of each tracker. MLflow has none that disables it: it writes into the folder of the start, which is
deleted."""


def disable_trackers(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the environment in which these trackers are disabled; ``folder`` is that of the start."""
    disabled = {
        name: value.format(folder=folder) for variables in TRACKERS.values() for name, value in variables.items()
    }
    return {**environment, **disabled}
