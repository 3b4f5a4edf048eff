"""Every command in the documentation runs: on synthetic data so small, and for so few steps, that it takes seconds.

A ```bash block holds `veloxseg` commands, which are run, or `make` targets, which must exist; what cannot run here (a
cluster, an installation) stands in a ```text block. ```python blocks are run too. Links and paths lead somewhere.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import veloxseg
from support.nnunet_results import write_results
from test_layering import ORDER
from veloxseg.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCE = Path(veloxseg.__file__).parent
ARCHITECTURE = ROOT / "docs" / "architecture.md"
# a path in a text: `model/losses.py`, `runtimes/native/`, not files that users have, such as `plan.json`
PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|c|h|css|js|md|toml)|(?:[\w.-]+/)+)`")
STORED = {"checkpoints/", "model/", "tensorboard/", "out_of_fold/", "report/"}  # folders that RUN holds
# what makes a command small; anything not listed is run as it is printed
REPLACED = {
    "phantom": {"--cases": ["5"], "--test-cases": ["1"]},
    "train": {"--epochs": ["1"], "--max-minutes": ["0.001"], "--folds": ["0"]},
}
ADDED = {
    "phantom": ["--size", "32", "24", "40"],
    "prepare": ["--patch", "32", "32", "64", "--workers", "1"],
    "check": ["--workers", "1"],
    "benchmark": ["--patch", "32", "32", "32"],
    "train": ["--set", "steps_per_epoch=1", "--epochs", "1"],
}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def shortened(arguments: list[str]) -> list[str]:
    verb, *rest = arguments
    result = [verb]
    for word in rest:
        replacement = REPLACED.get(verb, {}).get(result[-1])
        result += replacement if replacement is not None else [word]
    coarse = ["--spacing", "8", "8", "16"] if verb == "prepare" and "--as" in rest else []  # the paper's is fine
    return result + ADDED.get(verb, []) + coarse


def target(arguments: list[str]) -> Path | None:
    """The folder that a command makes."""
    if arguments[0] == "phantom":
        return Path(arguments[1])
    return Path(arguments[arguments.index("-o") + 1]) if "-o" in arguments else None


def run(arguments: list[str]) -> None:
    folder = target(arguments)
    if folder is not None and "--continue" not in arguments:
        shutil.rmtree(folder, ignore_errors=True)  # the page makes what the fixture only lays ready for other pages
    assert main(shortened(arguments)) == 0, f"`veloxseg {shlex.join(arguments)}` failed"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folders that pages refer to, made once: data sets, prepared data, a model, predictions."""
    folder = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run(["phantom", "data", "--cases", "5", "--test-cases", "1"])
        for layout in ("autopet", "hecktor", "brats"):
            run(["phantom", layout, "--cases", "5", "--layout", layout])
        run(["prepare", "data", "-o", "prepared"])
        run(["train", "prepared", "-o", "run"])
        run(["predict", "-m", "run", "-i", "data/imagesTs", "-o", "predictions"])
        write_results(Path("nnUNet_results/Dataset901_Classes/nnUNetTrainerVeloxSeg__nnUNetPlans__3d_fullres"))
        yield folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run(page: Path, everything: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, snippets = commands(page), blocks(page, "python")
    if not found and not snippets:
        pytest.skip("no command on this page")
    folder = tmp_path / "user"
    shutil.copytree(everything, folder)
    monkeypatch.chdir(folder)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for program, *arguments in found:
        if program == "make":
            assert re.search(rf"^{re.escape(arguments[0])}:", makefile, re.MULTILINE), f"no target {arguments[0]}"
        else:
            assert program == "veloxseg", f"{page.name}: `{program}` cannot be run by this test; use a text block"
            run(arguments)
    for snippet in snippets:
        exec(compile(snippet, str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}, which does not exist"


def named_paths(text: str) -> list[str]:
    return PATH.findall(text)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_named_paths_exist(page: Path) -> None:
    """A path in backticks lies in the repository or in the package."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    missing = [
        path
        for path in named_paths(text)
        if path not in STORED and not any((folder / path).exists() for folder in (ROOT, SOURCE, SOURCE.parent))
    ]
    assert missing == []


def test_the_architecture_page_knows_every_folder_and_root_module() -> None:
    named = set(named_paths(ARCHITECTURE.read_text(encoding="utf-8")))
    folders = {f"{path.parent.relative_to(SOURCE)}/" for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE}
    modules = {path.name for path in SOURCE.glob("*.py") if not path.name.startswith("__")}
    assert (folders | modules) - named == set()


def test_the_architecture_page_draws_the_imports_as_they_are() -> None:
    (drawing,) = blocks(ARCHITECTURE, "text")
    assert tuple(re.findall(r"\w+", drawing))[::-1] == ORDER
