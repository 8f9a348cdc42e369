"""Rules for commit messages, for the hook and for CI.

``python tests/support/tools/commit_messages.py FILE`` checks the message in a file; without one, it checks all commits
after the one that added these rules.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATHS = ("tests/commit_messages.py", "tests/support/tools/commit_messages.py")
"""Where this file was added, and where it is now."""
MAX_CHARACTERS = 72
AREA = re.compile(r"[a-z][a-z0-9_-]*(, [a-z][a-z0-9_-]*)*: (?=\S)")
IMPERATIVES = {
    **dict.fromkeys(("added", "adds", "adding"), "add"),
    **dict.fromkeys(("changed", "changes", "changing"), "change"),
    **dict.fromkeys(("fixed", "fixes", "fixing"), "fix"),
    **dict.fromkeys(("removed", "removes", "removing"), "remove"),
    **dict.fromkeys(("renamed", "renames", "renaming"), "rename"),
    **dict.fromkeys(("updated", "updates", "updating"), "update"),
    **dict.fromkeys(("various", "misc", "wip"), "limit"),
}
"""First words that no subject may have, and examples of imperatives for them."""
EXEMPT = ("docs: rewrite the architecture page, and compare its table with the imports",)
"""Subjects that stay as they are: rewriting them would change the hash of a commit that docs/score.md names."""
WRITTEN_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def find_faults(message: str) -> list[str]:
    """Return the faults of a message, one sentence for each."""
    lines = [line for line in message.split("\n") if not line.startswith("#")]
    subject = lines[0].rstrip()
    if subject.startswith(WRITTEN_BY_GIT) or subject in EXEMPT:
        return []
    faults = []
    if len(subject) > MAX_CHARACTERS:
        faults.append(f"The subject has {len(subject)} characters; shorten it to {MAX_CHARACTERS}.")
    area = AREA.match(subject)
    if not area:
        faults.append('Put the area first, in lower case: "findings: rank by saving".')
    word = subject[area.end() if area else 0 :].split(" ")[0].lower()
    if word in IMPERATIVES:
        faults.append(f'Replace "{word}" by an imperative that names the change: "{IMPERATIVES[word]} ...".')
    if len(lines) > 1 and lines[1].strip():
        faults.append("Leave the second line blank.")
    return faults


def list_new_commits() -> list[tuple[str, str]]:
    """Return the hash and message of each commit after the one that added these rules, without merges."""
    if not (ROOT / ".git").exists():  # the sdist
        return []
    added = _git("log", "--diff-filter=A", "--format=%H", "--", *PATHS).split()
    if not added:
        return []
    log = _git("log", "--no-merges", "--format=%H%n%B%x00", f"{added[-1]}..HEAD")
    entries = [entry.strip("\n").partition("\n") for entry in log.split("\0") if entry.strip()]
    return [(commit, message) for commit, _, message in entries]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """Print the faults of a message file or of all new commits; return 1 if there are some."""
    checked = [("", Path(arguments[0]).read_text(encoding="utf-8"))] if arguments else list_new_commits()
    faults = [(commit, message, fault) for commit, message in checked for fault in find_faults(message)]
    for commit, message, fault in faults:
        print(f"{commit[:12]} {message.partition(chr(10))[0]}\n  {fault}".lstrip())
    if not arguments:
        print(f"{len(checked)} commits since the rules were added, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
