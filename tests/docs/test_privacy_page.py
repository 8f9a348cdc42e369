"""docs/privacy.md: its examples run, and leave nothing of what they hide."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def test_the_examples_run_and_hide_what_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parts[-3] for path in files} >= {"safe", "safest"}
    assert [path for path in files if b"project-x" in path.read_bytes()] == []
