"""docs/paper.md: no table, figure or claim of the paper without its command, and no command with a wrong option."""

import re
import shlex
from pathlib import Path

import pytest

from veloxseg.cli import build_parser
from veloxseg.study.contents import CONTENTS, Entry
from veloxseg.study.table import choose_rows
from veloxseg.study.tables import find_table

PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", CONTENTS, ids=lambda entry: entry.place)
def test_the_page_has_every_entry_with_its_command(entry: Entry) -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {entry.place} |"))
    for command in entry.command.split("; "):
        assert command.removeprefix("docs/method.md, ") in line
    assert line.count("|") == 5
    assert all(cell.strip() for cell in line.split("|")[1:-1])


ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
COMMANDS = sorted({command for line in ROWS for command in re.findall(r"`veloxseg ([^`]+)`", line)})


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str) -> None:
    """By the command line itself, and by the table whose rows it names."""
    arguments = build_parser().parse_args(shlex.split(command))
    if arguments.verb == "study":
        choose_rows(find_table(arguments.name, ("ct", "pet")), arguments.rows)


def test_no_claim_is_without_a_command() -> None:
    section = PAGE.partition("## Claims of the text")[2].partition("\n## ")[0]
    claims = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(claims) > 10
    for claim in claims:
        assert len(claim) == 4, claim
        assert re.search(r"`(veloxseg|python) ", claim[1]), claim


def test_every_command_that_the_program_lists_starts_with_a_verb() -> None:
    for entry in CONTENTS:
        first = entry.command.split("; ")[0]
        assert first.startswith("veloxseg "), entry.place
