"""Files for the hosting site: workflows, issue forms, citation. They agree with the package and its documents."""

import re
import tomllib
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.cli import main

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
HOSTING = ROOT / ".github"
pytestmark = pytest.mark.skipif(not HOSTING.exists(), reason="the sdist has no files for the hosting site")

WORKFLOWS = sorted(HOSTING.glob("workflows/*.yml"))
FORMS = sorted(path for path in HOSTING.glob("ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SUPPORT = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")


def read(name: str) -> dict:
    """Return a workflow; YAML reads its key `on` as true."""
    return yaml.safe_load((HOSTING / "workflows" / name).read_text(encoding="utf-8"))


def steps_of(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit_with_the_tag_in_a_comment(path):
    uses = re.findall(r"uses: (?!\./)(.+)", path.read_text(encoding="utf-8"))
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+(\.\d+)*", use) for use in uses), uses


def test_one_action_has_one_version_in_all_workflows():
    uses = {use for path in WORKFLOWS for use in re.findall(r"uses: (?!\./)(.+)", path.read_text(encoding="utf-8"))}
    assert len({use.partition("@")[0] for use in uses}) == len(uses)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_only_the_job_that_publishes_may_write(path):
    workflow = read(path.name)
    assert workflow["permissions"] == {"contents": "read"}
    allowed = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert allowed in ({}, {"publish": {"id-token": "write", "attestations": "write"}})
    checkouts = [step for step in steps_of(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_a_release_is_published_from_a_tag_in_an_environment_with_reviewers():
    workflow = read("release.yml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    assert workflow["jobs"]["publish"]["environment"] == "release"
    assert workflow["jobs"]["publish"]["needs"] == "wheels"
    assert "workflow_call" in read("wheels.yml")[True]


def test_the_tests_of_the_host_are_those_of_ci():
    job = read("tests.yml")["jobs"]["all"]
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"
    assert job["container"] == f"python:{PROJECT['project']['requires-python'].removeprefix('>=')}-bookworm"


def test_workflows_and_ci_use_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    scripts = [(ROOT / ".ci" / "run").read_text(encoding="utf-8")]
    scripts += [step["run"] for path in WORKFLOWS for step in steps_of(read(path.name)) if "run" in step]
    commands = re.findall(r"^make (.+)$", "\n".join(scripts), re.M)
    used = {word for command in commands for word in command.split() if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert {"check", "test", "check-workflows"} <= used
    assert used <= targets


def test_python_versions_of_workflows_match_the_package_and_the_systems_table():
    classifiers = PROJECT["project"]["classifiers"]
    supported = [name.rpartition(" ")[2] for name in classifiers if re.search(r":: 3\.\d+$", name)]
    assert read("wheels.yml")["jobs"]["windows"]["strategy"]["matrix"]["python"] == supported
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert built == [f"cp{version.replace('.', '')}-*" for version in supported]
    listed = re.findall(r"^\| CPython (3\.\d+(?:, 3\.\d+)*) \|", SUPPORT, re.M)
    assert ", ".join(listed).split(", ") == supported
    assert set(read("tests.yml")["jobs"]["pythons"]["strategy"]["matrix"]["python"]) < set(supported)


def test_wheels_are_tried_on_each_system_of_the_table():
    table = SUPPORT.partition("## Systems")[2]
    systems = re.findall(r"^\| (Linux, x86-64|Linux, ARM|macOS|Windows)", table, re.M)
    jobs = read("wheels.yml")["jobs"]
    runs_on = jobs["native"]["strategy"]["matrix"]["machine"] + jobs["windows"]["strategy"]["matrix"]["system"]
    needed = {"Linux, x86-64": "x86_64", "Linux, ARM": "aarch64", "macOS": "macos", "Windows": "windows-latest"}
    assert len(systems) == 4
    assert {needed[system] for system in systems} <= set(runs_on)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_the_host_requires(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_form_for_a_wrong_finding_names_an_option_of_the_command(capsys):
    text = (HOSTING / "ISSUE_TEMPLATE" / "wrong-finding.yml").read_text(encoding="utf-8")
    assert "kinetoscope report RUN --redact -o redacted.html" in text
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    assert {"--redact", "-o"} <= set(re.findall(r"--?[\w-]+", capsys.readouterr().out))


def test_the_citation_names_the_present_version_and_no_person():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == kinetoscope.__version__
    assert citation["authors"] == [{"name": "The Kinetoscope developers"}]
    assert citation["license"] == PROJECT["project"]["license"]
