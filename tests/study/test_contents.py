"""docs/paper.md: no table or figure of the paper without its command."""

from pathlib import Path

import pytest

from veloxseg.study.contents import CONTENTS, Entry

PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", CONTENTS, ids=lambda entry: entry.place)
def test_the_page_has_every_entry_with_its_command(entry: Entry) -> None:
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {entry.place} |"))
    for command in entry.command.split("; "):
        assert command.removeprefix("docs/method.md, ") in line
    assert line.count("|") == 5
    assert all(cell.strip() for cell in line.split("|")[1:-1])
