"""Metadata, the checks on a public host, and where to report a vulnerability."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))


def test_classifiers_exist() -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= known


def test_the_repository_has_one_address() -> None:
    """Or none before publication: anybody could register an address that has no owner yet."""
    urls = {key.lower(): url.rstrip("/") for key, url in PROJECT.get("urls", {}).items()}
    site = re.search(
        r"^repo_url: (\S+)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {urls.get("repository"), CITATION.get("repository-code"), site[1] if site else None}
    assert len(named) == 1


def test_the_citation_is_of_this_version() -> None:
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_workflow_runs_the_same_checks() -> None:
    triggers: Any = WORKFLOW[True]  # YAML reads the key `on` as a boolean
    assert {"push", "pull_request"} <= set(triggers)
    (job,) = WORKFLOW["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    (python,) = [
        step["with"]["python-version"] for step in job["steps"] if "python" in step.get("uses", "")
    ]
    assert PROJECT["requires-python"] == f">={python}"
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_the_way_to_report_is_linked() -> None:
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
