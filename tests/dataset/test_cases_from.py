"""Cases of an archive chosen by a file."""

from pathlib import Path

import pytest

from support.archives import hecktor
from veloxseg.cli import main
from veloxseg.dataset.cases import read_names
from veloxseg.errors import DatasetError
from veloxseg.prepare.store import Prepared


def test_prepare_takes_the_cases_that_a_file_names(tmp_path: Path) -> None:
    data = hecktor(tmp_path / "data", 5)
    chosen = tmp_path / "cases.txt"
    chosen.write_text("# as in the paper\nA-001\n\n  A-003\r\nA-004\n", encoding="utf-8-sig")
    command = ["prepare", str(data), "-o", str(tmp_path / "out"), "--patch", "32", "32", "32", "--workers", "0"]
    assert main([*command, "--spacing", "2", "2", "4", "--cases-from", str(chosen)]) == 0
    assert [case.name for case in Prepared.open(tmp_path / "out").cases] == ["A-001", "A-003", "A-004"]


def test_a_name_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = hecktor(tmp_path / "data", 2)
    (tmp_path / "list.txt").write_text("A-000\nA-01\n")
    assert main(["check", str(data), "--cases-from", str(tmp_path / "list.txt")]) == 2
    assert "no case 'A-01' of 2; did you mean 'A-00" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"), [(b"# none", "names no case"), (b"\xff\xfe\x00", "is no text"), (None, "cannot be read")]
)
def test_a_file_without_names_is_an_error(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read_names(tmp_path / "list.txt")
