"""tests/support/tools/affected_tests.py: which tests a change can break, and in which order."""

from pathlib import Path

import pytest

from support.tools.affected_tests import affected_tests

TESTS = Path(__file__).parents[1]


def found(*changed):
    return [test.relative_to(TESTS).as_posix() for test in affected_tests(changed)]


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ("src/kinetoscope/formats/perfetto.py", "unit/formats/test_perfetto.py"),
        ("src/kinetoscope/cli/diff.py", "unit/cli/test_diff.py"),
        ("src/native/scan/nested.c", "unit/frames/test_tracks.py"),
        ("docs/flops.md", "docs/test_flops_page.py"),
        ("tests/unit/merge/test_check.py", "unit/merge/test_check.py"),
    ],
)
def test_the_test_of_what_was_changed_comes_first(changed, first):
    assert found(changed)[0] == first


def test_a_rule_that_is_found_by_its_name_has_the_tests_of_rules_and_of_its_kind():
    tests = found("src/kinetoscope/analysis/findings/rules/garbage_collection.py")
    assert {"unit/analysis/findings/test_findings.py", "unit/analysis/findings/test_finding_titles.py"} <= {*tests[:12]}


def test_the_page_of_a_rule_has_the_tests_that_read_pages():
    tests = found("src/kinetoscope/analysis/findings/rules/garbage_collection.md")
    assert {"docs/test_explanations.py", "unit/report/test_explanations.py"} <= {*tests[:6]}


@pytest.mark.parametrize("page", ["docs/sources.md", "README.md"])
def test_the_blocks_of_a_document_are_tested(page):
    assert {"docs/test_code_blocks.py", "docs/test_agreement.py"} <= {*found(page)}


def test_a_page_has_the_tests_of_its_folder():
    assert found("docs/decisions/006-ranks-share-the-name-of-their-launch.md")[0] == "docs/test_decisions.py"


def test_tests_come_by_their_distance_and_slow_ones_last():
    tests = found("src/kinetoscope/merge/check.py")
    places = [tests.index(name) for name in ("unit/merge/test_check.py", "unit/merge/test_changed_files.py")]
    assert places == sorted(places)
    slow = [name.partition("/")[0] in ("integration", "browser") for name in tests]
    assert slow == sorted(slow)
    assert any(slow)


def test_unaffected_tests_are_omitted():
    assert "unit/formats/test_perfetto.py" not in found("src/kinetoscope/report/terminal.py")


def test_tests_that_need_an_environment_of_their_own_are_left_out():
    assert not [name for name in found("src/kinetoscope/core/job/state.py") if name.startswith("compat/")]


def test_users_of_shared_test_code_are_found():
    assert "unit/merge/test_rewriters_agree.py" in found("tests/support/event_strategies.py")


def test_a_page_of_the_browser_is_tested_in_the_browser():
    assert "browser/test_timeline.py" in found("web/src/timeline/minimap.ts")
