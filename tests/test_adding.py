"""A new thing is one file, or none, and one entry of one table: everything that meets such things then knows it.

A toy format goes through every verb here; tests/runtimes/test_adding.py does the same with a runtime, and
tests/evaluate/test_report.py with a metric. The diffs of CONTRIBUTING.md, which add one thing of each kind, are applied
to a copy of the source, and a process of its own then uses it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import veloxseg
from support.models import build_plan, build_scans, save_model
from veloxseg.cli import build_parser, main
from veloxseg.dataset.layouts import open_dataset
from veloxseg.evaluate import evaluate_folder
from veloxseg.image import Volume, output_suffix, read, read_header, read_label, write
from veloxseg.image.formats import FORMATS, Format

TOY = '''
    """Toy: one line of JSON with shape, type and affine, and the voxels as they are."""

    import json

    import numpy as np

    from veloxseg.files import atomic_path
    from veloxseg.image.stream import Header, StoredVoxels
    from veloxseg.image.validate import check_affine, check_shape
    from veloxseg.image.writer import slabs

    def read_toy_header(path, max_voxels):
        with open(path, "rb") as file:
            line = file.readline(1000)
        fields = json.loads(line)
        check_shape(tuple(fields["shape"]), max_voxels)
        affine = np.array(fields["affine"])
        return Header(
            shape=tuple(fields["shape"]),
            affine=affine,
            dtype=np.dtype(fields["type"]),
            file_type="toy",
            warnings=tuple(check_affine(affine)),
            stored=StoredVoxels(path=path, encoding="raw", offset=len(line)),
        )

    def write_toy(volume, path):
        fields = {
            "shape": volume.array.shape,
            "type": volume.array.dtype.newbyteorder("<").str,
            "affine": volume.geometry.affine.tolist(),
        }
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            file.write(json.dumps(fields).encode() + b"\\n")
            for slab in slabs(volume.array):
                file.write(slab)
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_format.py").write_text(textwrap.dedent(TOY), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    line = Format(
        suffixes=(".toy",), header="toy_format:read_toy_header", writes=(".toy",), writer="toy_format:write_toy"
    )
    monkeypatch.setitem(FORMATS, "toy", line)


def choices_of_format() -> tuple[str, ...]:
    (verbs,) = (action for action in build_parser()._actions if action.dest == "verb")
    (found,) = (action for action in verbs.choices["predict"]._actions if "--format" in action.option_strings)
    return tuple(found.choices)


def write_dataset(folder: Path, count: int) -> dict[str, Volume]:
    """A data set in nnU-Net naming with files of the toy format; returns the labels."""
    labels = {}
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        scans = build_scans((48, 40, 30), seed=number)
        for channel, scan in enumerate(scans.values()):
            write(scan, folder / "imagesTr" / f"case{number}_{channel:04d}.toy")
        label = Volume(array=(scans["pet"].array > 5).astype(np.uint8), geometry=scans["pet"].geometry)
        write(label, folder / "labelsTr" / f"case{number}.toy")
        labels[f"case{number}"] = label
    description = {
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {"background": 0, "label1": 1},
        "numTraining": count,
        "file_ending": ".toy",
    }
    (folder / "dataset.json").write_text(json.dumps(description), encoding="utf-8")
    return labels


@pytest.mark.usefixtures("toy")
def test_a_toy_format_is_read_and_written(tmp_path: Path) -> None:
    scan = build_scans((9, 8, 7))["ct"]
    write(scan, tmp_path / "scan.toy")
    back = read(tmp_path / "scan.toy")
    assert np.array_equal(back.array, scan.array)
    assert back.geometry.same_grid(scan.geometry)
    assert back.file_type == "toy"
    assert output_suffix(back) == ".toy"
    assert read_header(tmp_path / "scan.toy").shape == (9, 8, 7)


@pytest.mark.usefixtures("toy")
def test_a_toy_format_is_known_to_every_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choices_of_format() == ("nifti", "nrrd", "mha", "dicom-seg", "toy")
    labels = write_dataset(tmp_path / "data", 2)
    assert [case.name for case in open_dataset(tmp_path / "data").cases] == ["case0", "case1"]
    assert main(["check", str(tmp_path / "data"), "--workers", "1"]) == 0
    assert "2 cases of ct, pet" in capsys.readouterr().out

    model = save_model(tmp_path / "model", build_plan())
    given = ["-m", str(model), "-i", str(tmp_path / "data" / "imagesTr"), "--runtime", "torch", "--format"]
    assert main(["predict", *given, "toy", "-o", str(tmp_path / "toys")]) == 0
    assert main(["predict", *given, "nifti", "-o", str(tmp_path / "niftis")]) == 0
    for name, label in labels.items():
        mask = read_label(tmp_path / "toys" / f"{name}.toy")
        assert np.array_equal(mask.array, read_label(tmp_path / "niftis" / f"{name}.nii.gz").array)
        assert mask.geometry.same_grid(label.geometry)
    evaluation = evaluate_folder(tmp_path / "toys", tmp_path / "data" / "labelsTr")
    assert {row.case for row in evaluation.rows} == {"case0", "case1"}


PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
KINDS = ("file format", "data-set layout", "runtime", "metric", "loss", "peer", "verb")
FILE = re.compile(r"^--- (\S+)\n\+\+\+ b/src/(\S+)\n@@\n(.*?)(?=^--- |\Z)", re.DOTALL | re.MULTILINE)


def diffs() -> dict[str, str]:
    """The diff of each kind of thing on the page."""
    sections = re.findall(r"^### An? (.+?)\n(.*?)(?=^### |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return {kind: re.search(r"^```diff\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1] for kind, text in sections}


def changes(diff: str) -> list[tuple[bool, str, str, str]]:
    """Of each file: whether it is new, its path, the text that goes and the text that comes."""
    found = []
    for before, path, body in FILE.findall(diff):
        lines = body.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        found.append((before == "/dev/null", path, old, new))
    return found


def apply(diff: str, source: Path) -> None:
    for is_new, path, old, new in changes(diff):
        file = source / path
        if is_new:
            assert not file.exists(), path
            file.write_text(new, encoding="utf-8")
        else:
            text = file.read_text(encoding="utf-8")
            assert text.count(old) == 1, f"{path} does not hold what CONTRIBUTING.md changes: {old!r}"
            file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source with all of the page's diffs applied."""
    source = tmp_path_factory.mktemp("extended")
    shutil.copytree(Path(veloxseg.__file__).parent, source / "veloxseg", ignore=shutil.ignore_patterns("__pycache__"))
    for diff in diffs().values():
        apply(diff, source)
    return source


def run(source: Path, *arguments: str) -> str:
    """What a process of the extended program prints."""
    environment = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "200"}
    result = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def command(source: Path, *arguments: str) -> str:
    return run(source, "-m", "veloxseg", *arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_thing_is_at_most_one_file_and_one_entry(kind: str) -> None:
    found = changes(diffs()[kind])
    assert sum(is_new for is_new, *_ in found) <= 1
    assert sum(not is_new for is_new, *_ in found) == 1
    assert set(diffs()) == set(KINDS)


def test_the_command_line_knows_what_was_added(extended: Path) -> None:
    assert command(extended, "hello", "Ben") == "hello Ben\n"
    assert "greet somebody" in command(extended, "--help")
    assert "{auto,folders," in command(extended, "check", "--help")
    assert "{auto,toy,native," in command(extended, "predict", "--help")
    assert "{toy,native," in command(extended, "export", "--help")


def test_data_of_an_added_layout_are_checked_and_scored(extended: Path, tmp_path: Path) -> None:
    for number in range(3):
        scan = build_scans((40, 36, 30), seed=number)["pet"]
        label = Volume(array=(scan.array > 5).astype(np.uint8), geometry=scan.geometry)
        for folder, name, volume in (
            (f"data/case{number}", "mr", scan),
            (f"data/case{number}", "lesion", label),
            ("masks", f"case{number}", label),
        ):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            write(volume, tmp_path / folder / f"{name}.nii.gz")
    assert "3 cases of mr" in command(extended, "check", str(tmp_path / "data"), "--workers", "1")
    folders = ["-p", str(tmp_path / "masks"), "-l", str(tmp_path / "masks"), "-o", str(tmp_path / "report")]
    assert "Jaccard" in command(extended, "evaluate", *folders)
    assert "|P∩L| / |P∪L|." in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_the_library_knows_what_was_added(extended: Path, tmp_path: Path) -> None:
    header = {"shape": [4, 3, 2], "type": "<i2", "affine": np.eye(4).tolist()}
    voxels = np.arange(24, dtype="<i2")
    (tmp_path / "scan.toy").write_bytes(json.dumps(header).encode() + b"\n" + voxels.tobytes())
    code = f"""
import torch
from pathlib import Path
from veloxseg.benchmark.models import MODELS
from veloxseg.image import read
from veloxseg.model.losses import Target, choose_loss
from veloxseg.peers.registry import build_peer
from veloxseg.runtimes import RUNTIMES, function
scan = read({str(tmp_path / "scan.toy")!r})
print(scan.file_type, scan.array.shape, int(scan.array.sum()))
loss, _ = choose_loss("dice", Target(values=(0, 1)))
print(*(float(term) > 0 for term in loss(torch.zeros(1, 2, 4, 4, 4), torch.ones(1, 4, 4, 4))))
print("voxelwise" in MODELS, *build_peer("voxelwise", (1, 1), 3, (8, 8, 8))(torch.zeros(1, 2, 8, 8, 8)).shape)
function(RUNTIMES["toy"].writer)(None, None, Path({str(tmp_path)!r}))
runtime = function(RUNTIMES["toy"].opener)(Path({str(tmp_path)!r}, "toy.json"), None, threads=1, device="cpu")
print(float(runtime(torch.full((1, 2, 2, 2, 2), 2.0).numpy()).mean()))
"""
    assert run(extended, "-c", code).splitlines() == [
        f"toy (4, 3, 2) {voxels.sum()}",
        "False True",
        "True 1 3 8 8 8",
        "0.5",
    ]
