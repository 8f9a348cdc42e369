"""The commands of the quickstart work as a reader does them, with the script of a tutorial."""

import re

import pytest

from support.tutorials import ROOT, Reader, page_of

PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


@pytest.mark.timeout(600)
def test_a_script_is_recorded_read_and_compared_with_the_commands_of_the_page(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    for name, text in re.findall(r"as `(\w+\.py)`[^`]*?```python\n(.*?)```", page_of("data-loading"), re.S)[:2]:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("BROWSER", "true")
    reader = Reader(tmp_path)
    (record,) = re.findall(r"\{tab-item\} Script\n.*?```sh\n(.*?)```", PAGE, re.S)
    _, read, *fix = re.split(r"^## ", PAGE, flags=re.M)[1:]
    for block in (record, *re.findall(r"```sh\n(.*?)```", "".join([read, *fix]), re.S)):
        reader.follow(f"\n```sh\n{block}```\n")
    recorded, summary, _, explained, _, comparison = reader.printed
    assert "runs/first" in recorded
    assert "Input-bound: the loop waits" in summary
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    assert explained.startswith("Input-bound: the loop waits")
    assert "\ninput_bound: The loop waits" in explained
    assert re.search(r"^(Faster|Slower|Inconclusive|No significant change)", comparison, re.M)
