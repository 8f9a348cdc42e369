"""When a step of a training ends, by what is seen of it; and whose folder is whose."""

import errno
import multiprocessing
import os

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.training.ranks import Ranks
from kinetoscope.unmodified.launch_folder import choose_folder
from kinetoscope.unmodified.settings import VARIABLE, AutoSettings, settings_of
from kinetoscope.unmodified.step_rule import StepRule


class Optimizer:
    def __init__(self, *parameters):
        self.param_groups = [{"params": parameters}]


CRITIC, GENERATOR = Optimizer(1, 2), Optimizer(3, 4)


def ends(rule, seen):
    """How many steps end at each thing that is seen: a fetch, or a step of an optimizer."""
    return [int(rule.fetches()) if what == "fetch" else rule.optimizer_stepped(what) for what in seen]


def test_a_step_ends_at_the_fetch_after_an_optimizers_step():
    rule = StepRule(None, has_loader=True)
    seen = [CRITIC, "fetch", "fetch", "fetch", CRITIC, "fetch", CRITIC, CRITIC, GENERATOR, "fetch"]
    assert ends(rule, seen) == [0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_without_a_loader_each_step_of_the_first_optimizer_ends_one():
    rule = StepRule(None, has_loader=False)
    assert ends(rule, [CRITIC, GENERATOR, CRITIC, CRITIC, GENERATOR]) == [1, 0, 1, 1, 0]


def test_sixteen_steps_without_a_fetch_count_and_so_it_stays():
    rule = StepRule(None, has_loader=True)
    assert ends(rule, [CRITIC] * 15 + ["fetch"]) == [0] * 15 + [1], "fifteen are those of one step"
    assert ends(rule, [CRITIC] * 16) == [0] * 15 + [16]
    assert ends(rule, ["fetch", CRITIC, CRITIC, "fetch"]) == [0, 1, 1, 0]


def test_a_second_training_has_a_first_optimizer_of_its_own():
    rule = StepRule("optimizer", has_loader=True)
    first, second = Optimizer(1, 2), Optimizer(2, 3)
    assert ends(rule, [first, second, first]) == [1, 0, 1]
    assert ends(rule, [second, "fetch"] * 15) == [0, 0] * 15, "fifteen may be those of one step"
    assert ends(rule, [second, second, first]) == [16, 1, 0], "the first one is not used any more"
    del second
    assert ends(rule, [first, first]) == [2, 1], "or gone"
    assert ends(rule, [GENERATOR] * 80) == [0] * 80, "it trains something else in turns, as PPO's critic"


def test_steps_between_fetches_are_those_of_one_step_also_in_a_second_training():
    rule = StepRule(None, has_loader=True)
    first, second = Optimizer(1), Optimizer(1)
    assert ends(rule, [first, "fetch"]) == [0, 1]
    assert ends(rule, [second, "fetch"] * 20) == [0, 1] * 20
    assert ends(rule, [second] * 16) == [0] * 15 + [16]


@pytest.mark.parametrize(("count_by", "expected"), [("fetch", [0] * 20 + [1]), ("optimizer", [1] * 20 + [0])])
def test_what_the_user_says_holds(count_by, expected):
    assert ends(StepRule(count_by, has_loader=count_by == "optimizer"), [CRITIC] * 20 + ["fetch"]) == expected


def test_settings_come_back_from_the_environment():
    settings = AutoSettings(out="läufe/x", num_steps=3, count_by="fetch", report=True)
    assert settings_of({VARIABLE: settings.to_variable()}) == settings
    assert settings_of({}) == AutoSettings()
    with pytest.raises(SettingsError, match="what `kinetoscope run` sets"):
        settings_of({VARIABLE: '{"num_steps": 0}'})


def claim(out, answers):
    answers.put(choose_folder(out, Ranks()))


def refused(*_):
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False], ids=["", "without second names of files"])
def test_each_of_many_trainings_at_once_gets_a_folder_of_its_own(tmp_path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", refused)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=claim, args=(str(tmp_path / "run"), answers)) for _ in range(8)]
    for process in processes:
        process.start()
    found = sorted(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert found == [str(tmp_path / "run"), *(str(tmp_path / "run" / str(number)) for number in range(2, 9))]
    assert os.listdir(tmp_path / "run" / "2") == [".launch"]


def test_ranks_of_a_launch_share_a_folder_also_after_a_restart(tmp_path, monkeypatch):
    for rank in (0, 1, 0):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("MASTER_PORT", "29500")
        assert choose_folder(str(tmp_path), Ranks(rank, rank, 2, 2)) == str(tmp_path)
    monkeypatch.setenv("MASTER_PORT", "29501")
    assert choose_folder(str(tmp_path), Ranks(0, 0, 2, 2)) == str(tmp_path / "2")


def test_ranks_of_which_the_first_starts_the_others_share_a_folder(tmp_path, monkeypatch):
    """As Lightning's do, and without a number in their environment."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "41234")
    for rank, parent in enumerate((10, 11)):
        monkeypatch.setattr(os, "getppid", lambda parent=parent: parent)
        assert choose_folder(str(tmp_path), Ranks(rank, rank, 2, 2)) == str(tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: 12)
    monkeypatch.delenv("MASTER_PORT")
    assert choose_folder(str(tmp_path), Ranks(0, 0, 2, 2)) == str(tmp_path / "2")
