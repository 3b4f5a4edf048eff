"""The pages of `make docs`, gathered for mkdocs: README and docs/, what they link to, and two references made here.

    python packaging/site.py FOLDER

FOLDER gets the layout of the repository, so that a link which works there works on the site: README.md is the first
page, and whatever a page links to (the changelog, a table of figures, a JSON file) comes along. The reference of the
commands is read from the program's own parsers, that of Python from the docstrings (mkdocstrings).
"""

import argparse
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)#\s]+)")
API = {
    "Segmenting": (
        "veloxseg.segment",
        "veloxseg.predict.predictor.Options",
        "veloxseg.predict.predictor.Predictor",
        "veloxseg.predict.result.Segmentation",
    ),
    "Scans": ("veloxseg.image.read", "veloxseg.image.read_label", "veloxseg.image.write", "veloxseg.image.volume"),
    "Scores": ("veloxseg.evaluate.evaluate_folder", "veloxseg.evaluate.write_report", "veloxseg.evaluate.dice"),
    "The network": ("veloxseg.preset", "veloxseg.NetworkConfig", "veloxseg.VeloxSeg", "veloxseg.SDKTModel"),
    "The authors' names": ("veloxseg.reference",),
    "The server": ("veloxseg.serve.client.Client",),
    "Errors": ("veloxseg.errors",),
}


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    gather([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))], folder)
    (folder / "docs" / "commands.md").write_text(commands(), encoding="utf-8")
    (folder / "docs" / "api.md").write_text(api(), encoding="utf-8")
    shutil.copyfile(Path(__file__).with_suffix(".css"), folder / "docs" / "site.css")


def gather(pages: list[Path], folder: Path) -> None:
    """Copies pages, and all that can be reached from them by links."""
    waiting, done = list(pages), set[Path]()
    while waiting:
        path = waiting.pop().resolve()
        if path in done or not path.is_file():  # mkdocs names what is missing
            continue
        done.add(path)
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if path.suffix == ".md":
            links = LINK.findall(path.read_text(encoding="utf-8"))
            waiting += [path.parent / link for link in links if "://" not in link]


def commands() -> str:
    os.environ["COLUMNS"] = "88"  # so wide is a block of code on the site
    from veloxseg.cli import VERBS, build_parser

    verbs = subparsers(build_parser())
    codes = "Exit codes: 0 done, 1 internal error, 2 bad input or usage, 130 stopped."
    lines = ["# Commands", "", f"As `veloxseg VERB -h` prints them. {codes}"]
    for verb in VERBS:
        lines += section(verbs[verb], "##")
    return "\n".join(lines) + "\n"


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def section(parser: argparse.ArgumentParser, heading: str) -> list[str]:
    """One verb: what it does, its usage and its options; then the verbs within it."""
    usage = parser.format_usage().rstrip().removeprefix("usage: ").replace("\n" + " " * len("usage: "), "\n")
    lines = ["", f"{heading} {parser.prog}", "", description(parser), "", "```text", usage, "```", ""]
    formatter = argparse.HelpFormatter(parser.prog)
    rows = []
    for action in parser._actions:
        if action.help and action.dest not in ("help", "debug", "quiet") and action.help != argparse.SUPPRESS:
            name = formatter._format_action_invocation(action)
            rows.append(f"| `{cell(name)}` | {cell(formatter._expand_help(action))} |")
    if rows:
        lines += ["| argument | meaning |", "|---|---|", *rows]
    for inner in subparsers(parser).values():
        lines += section(inner, heading + "#")
    return lines


def description(parser: argparse.ArgumentParser) -> str:
    """Paragraphs; one whose lines are aligned by hand is shown as it stands."""
    paragraphs = (parser.description or "").strip().split("\n\n")
    aligned = re.compile(r"^ |\S  +\S", re.MULTILINE)
    return "\n\n".join(f"```text\n{text}\n```" if aligned.search(text) else text for text in paragraphs)


def cell(text: str) -> str:
    """A text of help as a cell of a table: nothing in it is markup but code."""
    return re.sub(r"([|*<])", r"\\\1", " ".join(text.split()))


def api() -> str:
    lines = ["# Python", "", "What other programs may rely on. Everything else may change between versions.", ""]
    for title, names in API.items():
        lines += [f"## {title}", "", *(f"::: {name}\n" for name in names)]
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
