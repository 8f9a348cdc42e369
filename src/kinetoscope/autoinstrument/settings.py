"""Settings of `kinetoscope run`, which the processes below it read from their environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from kinetoscope.autoinstrument.trial_files import TrialSettings
from kinetoscope.errors import SettingsError

ENVIRONMENT_VARIABLE, SEED_VARIABLE = "KINETOSCOPE_AUTO", "KINETOSCOPE_TRIAL_SEED"
DEFAULT_NUM_STEPS = 10
_BOOTSTRAP = Path(__file__).parent / "bootstrap"
CountBy = Literal["fetch", "optimizer"]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class AutoSettings(msgspec.Struct, frozen=True):
    """Settings for recording an unmodified script: ``num_steps`` steps after the first ``after``, into ``out``.

    The default is 10 steps; with ``diagnose`` it is the number of steps that takes a second, where steps take less than
    5 ms.

    ``count_by`` selects the end of a step: a ``fetch`` of a DataLoader after a step of an optimizer, or that step of
    the ``optimizer``; None chooses in the process.
    """

    out: str = "runs/{time}"
    num_steps: Annotated[int, msgspec.Meta(ge=1)] | None = None
    after: _Count = 10
    count_by: CountBy | None = None
    diagnose: bool = False
    modules: bool = False
    report: bool = False
    slow_steps: bool = False
    pid: int = 0
    """Process of the command itself; 0 if unknown."""
    started_ns: int = 0
    """Start of the command in unix nanoseconds."""

    trial: TrialSettings | None = None
    """Start of `kinetoscope try`; None under `kinetoscope run`."""

    @property
    def command(self) -> str:
        """Name that all processes of the command share, and no other command has; "" if it is unknown."""
        return f"{self.pid}-{self.started_ns}" if self.pid else ""

    def to_environment_value(self) -> str:
        """Return the value of the environment variable `ENVIRONMENT_VARIABLE`."""
        return msgspec.json.encode(self).decode()


def read_settings(environment: Mapping[str, str] = os.environ) -> AutoSettings:
    """Return the settings in an environment, or the defaults.

    Raises:
        SettingsError: The variable has another content.
    """
    text = environment.get(ENVIRONMENT_VARIABLE)
    if not text:
        return AutoSettings()
    try:
        return msgspec.json.decode(text, type=AutoSettings)
    except msgspec.MsgspecError as error:
        raise SettingsError(
            f"The environment variable {ENVIRONMENT_VARIABLE} is not what `kinetoscope run` sets: {error}."
        ) from None


def build_environment(settings: AutoSettings, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment in which each Python starts with `bootstrap/sitecustomize.py`."""
    path = os.pathsep.join(filter(None, [str(_BOOTSTRAP), environment.get("PYTHONPATH")]))
    seed = {} if settings.trial is None else {SEED_VARIABLE: str(settings.trial.seed)}
    return {**environment, "PYTHONPATH": path, ENVIRONMENT_VARIABLE: settings.to_environment_value(), **seed}
