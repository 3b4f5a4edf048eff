"""What a release says of itself is the same everywhere: its version, its extras, the pages that are published."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import veloxseg
from veloxseg.cli import main
from veloxseg.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"dev", "docs"}  # what the repository needs, and no user of the program


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"veloxseg {veloxseg.__version__}\n"
    assert re.findall(r"^## \[(.+)\]", text("CHANGELOG.md"), re.MULTILINE)[0] == veloxseg.__version__
    assert re.findall(r"^version: (.+)", text("CITATION.cff"), re.MULTILINE) == [veloxseg.__version__]


def test_every_extra_is_known_to_the_program_and_on_the_page() -> None:
    extras = set(PROJECT["optional-dependencies"])
    page = re.findall(r"^\| `([a-z]+)` \|", text("docs/install.md"), re.MULTILINE)
    assert len(page) == len(set(page))
    assert set(EXTRAS) == extras - FOR_DEVELOPERS - {"all"}
    assert set(page) == extras


def test_all_brings_all() -> None:
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(re.findall(r"[a-z]+", everything.partition("[")[2])) == set(EXTRAS)


def test_every_page_is_on_the_site() -> None:
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    listed = re.findall(r": ((?:docs/)[\w-]+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert set(listed) == pages | {"docs/commands.md", "docs/api.md"}  # these two are made by packaging/site.py
    assert len(listed) == len(set(listed))


def test_the_workflow_runs_on_every_system_and_asks_for_targets_that_exist() -> None:
    jobs = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"]
    systems = {system for job in jobs.values() for system in job.get("strategy", {}).get("matrix", {}).get("os", [])}
    systems |= {job["runs-on"] for job in jobs.values()}
    for system in ("ubuntu-24.04", "ubuntu-24.04-arm", "macos-14", "windows-2022"):
        assert system in systems
    asked = {
        target
        for job in jobs.values()
        for step in job["steps"]
        for target in re.findall(r"\bmake ([\w-]+)", step.get("run", ""))
    }
    assert {"test", "test-wheels", "test-install", "test-versions", "docs"} <= asked
    assert asked <= set(re.findall(r"^([\w-]+):", text("Makefile"), re.MULTILINE))
