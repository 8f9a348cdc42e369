"""The start-up hook of each Python process below `kinetoscope run` and `kinetoscope try`."""

import os
import random
import subprocess
import sys

from kinetoscope.autoinstrument.settings import AutoSettings, build_environment
from kinetoscope.autoinstrument.trial_files import TrialSettings

SCRIPT = "import sys, csv, random, zipfile; print(random.random(), [path for path in sys.path if 'bootstrap' in path])"


def test_a_trial_seeds_random_when_it_is_imported_and_nothing_else_changes(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('of the user')")
    settings = AutoSettings(trial=TrialSettings(folder=str(tmp_path), seed=7))
    environment = build_environment(settings, {**os.environ, "PYTHONPATH": str(tmp_path)})
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"of the user\n{random.Random(7).random()} []\n", "")
