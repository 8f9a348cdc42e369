"""Tests of the rules for commit messages."""

import subprocess
import sys

import pytest

from support.tools import commit_messages


@pytest.mark.parametrize(
    "message",
    [
        "findings: rank by saving, not by confidence\n\nConfidence hid the largest.",
        "torch, pulse: count the steps of a compiled loop",
        "build: add a lock file",
        "Merge branch 'main' into fix",
        'Revert "findings: rank by saving"\n\nIt was wrong.',
        "docs: fix a link\n\n# Lines of git's template do not count, however long they are: " + "x" * 80,
    ],
)
def test_these_messages_pass(message):
    assert commit_messages.find_faults(message) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Findings are ranked by saving", "area first"),
        ("Findings: rank by saving", "area first"),
        ("findings:rank by saving", "area first"),
        ("findings: " + "x" * 63, "73 characters"),
        ("findings: Added ranks", '"add ..."'),
        ("findings: fixes ranks", '"fix ..."'),
        ("findings: updated ranks", '"update ..."'),
        ("findings: various changes", '"limit ..."'),
        ("findings: rank by saving\nnot by confidence", "second line blank"),
    ],
)
def test_a_fault_is_reported_with_its_remedy(message, fault):
    assert [fault in found for found in commit_messages.find_faults(message)] == [True]


def test_the_hook_prints_the_fault_of_a_message_file_and_fails(tmp_path):
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text("Added a rank\n")
    done = subprocess.run([sys.executable, commit_messages.__file__, path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Put the area first" in done.stdout


def test_only_commits_after_the_rules_are_checked(tmp_path, monkeypatch):
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(message):
        git("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", message)

    git("init", "-q")
    commit("A subject from before the rules")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "commit_messages.py").touch()
    git("add", ".")
    commit("Rules")
    monkeypatch.setattr(commit_messages, "ROOT", tmp_path)
    assert commit_messages.main([]) == 0
    commit("docs: explain the rules\n\nThey are new.")
    commit("Too late")
    assert [message.split("\n")[0] for _, message in commit_messages.list_new_commits()] == [
        "Too late",
        "docs: explain the rules",
    ]
    assert commit_messages.main([]) == 1
