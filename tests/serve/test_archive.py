"""Archives from outside: what comes out is counted, and stays in its folder."""

import json
import stat
import zipfile
from pathlib import Path

import pytest

from veloxseg.errors import ImageError
from veloxseg.serve import archive


@pytest.fixture
def box(tmp_path: Path):
    """Packs members into an archive, and gives the archive and the folder to unpack into."""

    def make(**members: bytes) -> tuple[Path, Path]:
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in members.items():
                packed.writestr(name, data)
        return tmp_path / "a.zip", tmp_path / "out"

    return make


def test_members_get_names_of_ours(box) -> None:
    packed, out = box(**{"../../climb.nii.gz": b"a", "/etc/passwd": b"b", "C:\\x\\y.dcm": b"c"})
    assert archive.unpack(packed, out) == []
    assert sorted(path.name for path in out.iterdir()) == ["000000.nii.gz", "000001", "000002.dcm", "names.json"]
    assert len(json.loads((out / "names.json").read_text())) == 3
    assert not (out.parent.parent / "climb.nii.gz").exists()


def test_a_bomb_is_refused_and_leaves_nothing(box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 16)
    packed, out = box(**{"zeros.nii": bytes(64 << 20)})
    with pytest.raises(ImageError, match="grows beyond"):
        archive.unpack(packed, out)
    assert list(out.parent.iterdir()) == [packed]


def test_what_a_header_says_about_a_size_is_not_believed(box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 10)
    monkeypatch.setattr(archive, "MOST_RATIO", 1)
    packed, out = box(**{"a.nii": bytes(1 << 20)})
    data = bytearray(packed.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")  # the directory claims ten bytes
    packed.write_bytes(data)
    with pytest.raises(ImageError):
        archive.unpack(packed, out)
    assert not out.exists()


def test_links_and_archives_within_are_left_out(box, tmp_path: Path) -> None:
    inner = tmp_path / "inner.zip"
    with zipfile.ZipFile(inner, "w") as packed:
        packed.writestr("x", "y")
    packed, out = box(**{"inner.zip": inner.read_bytes(), "fine.nii": b"1"})
    with zipfile.ZipFile(packed, "a") as more:
        link = zipfile.ZipInfo("link.nii")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        more.writestr(link, "/etc/passwd")
    (note,) = archive.unpack(packed, out)
    assert note.startswith("2 members")
    assert list(json.loads((out / "names.json").read_text()).values()) == ["fine.nii"]


def test_too_many_members_are_refused(box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    packed, out = box(**{str(number): b"" for number in range(4)})
    with pytest.raises(ImageError, match="4 members"):
        archive.unpack(packed, out)


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_a_damaged_archive_is_one_line(box, keep: float) -> None:
    packed, out = box(**{"a.nii": bytes(range(256)) * 50})
    data = packed.read_bytes()
    packed.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ImageError, match="damaged"):
        archive.unpack(packed, out)
