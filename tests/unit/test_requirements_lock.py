"""Tests of the check of the lock file, without a network."""

import pytest
from packaging.requirements import Requirement

from support.tools import requirements_lock


@pytest.mark.parametrize(
    ("requirement", "text", "fault"),
    [
        ("polars>=1.36", "polars==1.36.1\n", ""),
        ("moto[server]>=5", "moto==5.1.0\n", ""),
        ("Scikit_Learn", "scikit-learn==1.7.0\n", ""),
        ('zstandard; python_version < "3.14"', "zstandard==0.25.0\n", ""),
        ('tomli; python_version < "3.11"', "", ""),
        ("polars>=1.36", "polars==1.35.2\n", "polars 1.35.2 does not satisfy >=1.36."),
        ("polars", "polars-runtime==1.36.1\n", "polars has no version."),
        ("polars", "--index-url https://example.org\npolars==1.36.1\n", "It names an index, a link or a hash."),
        ("polars", "polars==1.36.1 --hash=sha256:00\n", "It names an index, a link or a hash."),
        ("polars", "polars==1.36.1\ntorch==2.13.0\n", "torch is pinned."),
        ("polars", "polars==1.36.1\nnvidia-cublas-cu12==12.8.4.1\n", "nvidia-cublas-cu12 is pinned."),
    ],
)
def test_a_fault_of_the_lock_file_is_found(requirement, text, fault):
    assert requirements_lock.list_faults([Requirement(requirement)], text) == ([fault] if fault else [])


def test_the_requirements_are_those_of_the_package_and_its_groups_without_torch():
    names = {requirement.name for requirement in requirements_lock.list_requirements()}
    assert {"psutil", "nvidia-ml-py", "pytest", "ruff", "sphinx", "pre-commit", "transformers"} <= names
    assert not {"torch", "tabulate", "plotly"} & names


def test_the_lock_file_satisfies_pyproject():
    assert (
        requirements_lock.list_faults(
            requirements_lock.list_requirements(), requirements_lock.LOCK.read_text(encoding="utf-8")
        )
        == []
    )
