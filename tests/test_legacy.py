"""Files that version 0.1.0 wrote are still read: PREPARED, RUN, MODEL, exports, masks (tests/legacy/README.md)."""

import dataclasses
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import veloxseg
from support.models import FORMS, cache
from veloxseg.cli import main
from veloxseg.evaluate import evaluate_folder
from veloxseg.files import read_json, sha256
from veloxseg.image import read, read_label
from veloxseg.kernels import calling
from veloxseg.model.config import PRESETS
from veloxseg.model_folder import ModelFolder
from veloxseg.prepare.store import Prepared
from veloxseg.train.loop import train
from veloxseg.train.run_folder import data_hash

__all__ = ["cache"]

ARCHIVE = Path(__file__).parent / "legacy" / "v0.1.0.tar.xz"
CASE = "unseen_0001"
MOST_DIFFERENT_VOXELS = 5  # those whose logits are almost zero
MACHINE_PATHS = (b"/tmp", b"/work", b"/home", b"/root", b"/usr")


def unpack(folder: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "v0.1.0"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, for tests that change none of them."""
    return unpack(tmp_path_factory.mktemp("legacy"))


@pytest.fixture
def scans(old: Path) -> dict[str, Path]:
    return {name: old / "data" / "imagesTs" / f"{CASE}_{i:04d}.nii.gz" for i, name in enumerate(("ct", "pet"))}


def different_voxels(mask: np.ndarray, stored: Path) -> int:
    expected = read_label(stored).array
    assert expected.any()
    return int(np.count_nonzero(mask != expected))


def test_the_archive_holds_no_path_of_a_machine(old: Path) -> None:
    for path in old.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not any(word in content for word in MACHINE_PATHS), path.relative_to(old)


def test_prepared_is_read(old: Path) -> None:
    prepared = Prepared.open(old / "prepared")
    assert [case.name for case in prepared.cases] == ["synthetic_0001", "synthetic_0002", "synthetic_0003", CASE]
    split = prepared.split()
    assert (len(split.train), len(split.validation), len(split.test)) == (2, 1, 1)
    assert prepared.plan.labels == {"background": 0, "lesion": 1}
    for case in prepared.cases:
        image, label = prepared.image(case.name), prepared.label(case.name)
        assert image.shape == (2, *label.shape)
        assert np.isfinite(image).all()
        for value, points in prepared.foreground(case.name).items():
            assert (label[tuple(points.T)] == value).all()
        assert prepared.placement(case.name).network.shape == label.shape
    assert data_hash(prepared) == read_json(old / "run" / "settings.json")["data"]


@pytest.mark.parametrize("form", FORMS)
def test_an_export_gives_the_stored_mask(form: str, old: Path, scans: dict[str, Path]) -> None:
    mask = veloxseg.segment(scans, model=old / "exports" / form, runtime=form, threads=1)
    assert different_voxels(mask.array, old / "mask" / form / f"{CASE}.nii.gz") <= MOST_DIFFERENT_VOXELS


@pytest.mark.parametrize("runtime", ["torch", "openvino", "onnx"])
def test_a_model_gives_the_stored_mask(runtime: str, old: Path, scans: dict[str, Path]) -> None:
    assert ModelFolder.open(old / "model").architecture == "veloxseg"
    mask = veloxseg.segment(scans, model=old / "model", runtime=runtime, threads=1)
    assert different_voxels(mask.array, old / "mask" / "onnx" / f"{CASE}.nii.gz") <= MOST_DIFFERENT_VOXELS


# A bias that a norm takes away has no gradient but rounding; AdamW scales it up, and processors round differently.
BEFORE_A_NORM = ("down.0.bias", "join.0.bias", "ups.0.0.bias", "ups.1.0.bias", "ups.2.0.bias")


def test_a_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = unpack(tmp_path)
    preset = read_json(old / "run_preset.json")
    monkeypatch.chdir(old)
    tiny = dataclasses.replace(PRESETS[preset["preset"]], **preset["network"])
    monkeypatch.setitem(PRESETS, preset["preset"], tiny)
    monkeypatch.setattr(calling, "training_kernels", lambda: None)  # their dropout draws other numbers than 0.1.0 did
    before = load_file("run/model/model.safetensors")
    state = train("prepared", "run", resume=True)
    assert state.epoch == preset["epochs"]
    after, expected = load_file("run/model/model.safetensors"), load_file("expected.safetensors")
    assert after.keys() == expected.keys()
    for name, values in expected.items():
        if not name.endswith(BEFORE_A_NORM):
            torch.testing.assert_close(after[name], values, atol=2e-5, rtol=0, msg=name)
    assert any(not torch.allclose(before[name], values, atol=1e-4) for name, values in expected.items())


def test_masks_are_evaluated(old: Path) -> None:
    evaluation = evaluate_folder(old / "mask" / "onnx", old / "data" / "labelsTs")
    (row,) = evaluation.rows
    mask, label = (read_label(old / folder / f"{CASE}.nii.gz").array > 0 for folder in ("mask/onnx", "data/labelsTs"))
    assert (row.case, row.structure) == (CASE, "lesion")
    assert row.scores.dice == pytest.approx(2 * (mask & label).sum() / (mask.sum() + label.sum()))


def test_masks_beside_their_record_are_replaced(tmp_path: Path) -> None:
    old = unpack(tmp_path)
    folder = tmp_path / "masks"
    shutil.copytree(old / "mask" / "onnx", folder)
    given = ["-m", str(old / "exports" / "onnx"), "-i", str(old / "data" / "imagesTs"), "-o", str(folder)]
    assert main(["predict", *given, "--runtime", "onnx", "--threads", "1", "--statistics"]) == 0
    record = json.loads((folder / f"{CASE}.json").read_text(encoding="utf-8"))
    assert record["outputs"] == {path.name: sha256(path) for path in folder.iterdir() if path.name != f"{CASE}.json"}
    assert read(folder / f"{CASE}.nii.gz").geometry.same_grid(read(old / "mask" / "onnx" / f"{CASE}.nii.gz").geometry)
