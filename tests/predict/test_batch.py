"""Folders of cases: one failure does not cost the others, a stopped run goes on, nothing is left half written."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.errors import ConfigError, DatasetError, OutputError
from veloxseg.image import read_label, write
from veloxseg.predict import batch
from veloxseg.predict.batch import predict_cases
from veloxseg.predict.inputs import InputCase, find_cases, part_of
from veloxseg.predict.predictor import Predictor


@pytest.fixture
def folder(tmp_path, make_scans) -> Path:
    """Three cases in nnU-Net naming."""
    target = tmp_path / "in put"
    target.mkdir()
    for number in range(3):
        for channel, volume in enumerate(make_scans((48, 40, 30), seed=number).values()):
            write(volume, target / f"case{number}_{channel:04d}.nii.gz")
    return target


def command(model: Path, folder: Path, output: Path, *more: str) -> list[str]:
    return ["predict", "-m", str(model), "-i", str(folder), "-o", str(output), "--threads", "1", *more]


def test_a_folder_with_a_broken_case(exported, folder, tmp_path, capsys):
    broken = folder / "case1_0001.nii.gz"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:1000])
    output = tmp_path / "out"
    assert main(command(exported["openvino"], folder, output, "--statistics", "--preview")) == 2
    printed = capsys.readouterr()
    assert "1 of 3 cases failed" in printed.err
    assert "case1: " in printed.err
    assert "GiB of memory" in printed.out
    expected = {f"case{n}{end}" for n in (0, 2) for end in (".nii.gz", ".json", ".png", "_statistics.json")}
    assert {path.name for path in output.iterdir()} == expected

    # mended, only the failed case is computed
    broken.write_bytes(whole)
    before = (output / "case0.nii.gz").stat().st_mtime_ns
    assert main(command(exported["openvino"], folder, output)) == 0
    assert "2 of 3 cases are done already" in capsys.readouterr().out
    assert (output / "case0.nii.gz").stat().st_mtime_ns == before
    assert read_label(output / "case1.nii.gz").array.shape == (48, 40, 30)

    # other options are another result
    assert main(command(exported["openvino"], folder, output, "--keep-largest")) == 0
    assert "done already" not in capsys.readouterr().out


def test_one_case_by_modality_to_a_file(exported, case, tmp_path):
    output = tmp_path / "deep" / "mask.nii.gz"
    inputs = [text for name, path in case.items() for text in ("-i", f"{name}={path}")]
    assert main(["predict", "-m", str(exported["openvino"]), *inputs, "-o", str(output), "--quiet"]) == 0
    assert read_label(output).array.any()
    assert (output.parent / "mask.json").is_file()


def test_one_broken_case_is_one_line_and_no_file(exported, case, tmp_path, capsys):
    case["pet"].write_bytes(b"not an image")
    inputs = [text for name, path in case.items() for text in ("-i", f"{name}={path}")]
    assert main(["predict", "-m", str(exported["openvino"]), *inputs, "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_same_scan_in_two_files_is_refused(folder):
    (folder / "case1_0001.nrrd").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"twice \(case1_0001.nii.gz, case1_0001.nrrd\); remove one"):
        find_cases([str(folder)], ("ct", "pet"))


def test_parts_cover_all_cases_once(folder):
    cases = find_cases([str(folder)], ("ct", "pet"))
    assert [case.name for case in cases] == ["case0", "case1", "case2"]
    assert set(cases[0].images) == {"ct", "pet"}
    shared_out = [case.name for part in range(2) for case in part_of(cases, 2, part)]
    assert sorted(shared_out) == ["case0", "case1", "case2"]
    with pytest.raises(ConfigError, match="part 2 of 2"):
        part_of(cases, 2, 2)


def test_inputs_that_make_no_sense(folder, tmp_path):
    file = folder / "case0_0000.nii.gz"
    with pytest.raises(ConfigError, match="not MODALITY=FILE"):
        find_cases([f"ct={file}", "b.nii"], ("ct", "pet"))
    with pytest.raises(ConfigError, match="given twice"):
        find_cases([f"pet={file}", f"PT={file}"], ("ct", "pet"))
    with pytest.raises(DatasetError, match="does not exist"):
        find_cases([f"ct={file}", "pet=nothing.nii"], ("ct", "pet"))
    with pytest.raises(DatasetError, match="channel 1"):
        find_cases([str(folder)], ("ct",))
    with pytest.raises(DatasetError, match="does not exist"):
        find_cases([str(tmp_path / "nothing")], ("ct", "pet"))


def test_dataset_json_names_the_channels(folder):
    (folder / "dataset.json").write_text('{"channel_names": {"0": "PET", "1": "CT"}}')
    assert find_cases([str(folder)], ("ct", "pet"))[0].images["pet"].name == "case0_0000.nii.gz"


def test_a_full_disk_is_noticed_before_computing(exported, folder, tmp_path, monkeypatch):
    predictor = Predictor([exported["openvino"]], threads=1)
    cases = find_cases([str(folder)], predictor.plan.names)[:1]

    class Full:
        free = 1000

    def never(*arguments):
        raise AssertionError("computed although the disk is full")

    monkeypatch.setattr(batch.shutil, "disk_usage", lambda path: Full)
    monkeypatch.setattr(Predictor, "__call__", never)
    with pytest.raises(OutputError, match="MB free"):
        predict_cases(predictor, cases, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_an_output_that_cannot_be_written(exported, tmp_path):
    predictor = Predictor([exported["openvino"]], threads=1)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write in"):
        predict_cases(predictor, [InputCase("a", {})], tmp_path / "file" / "out")


def test_a_failing_write_leaves_nothing(exported, folder, tmp_path, monkeypatch):
    predictor = Predictor([exported["openvino"]], threads=1)
    cases = find_cases([str(folder)], predictor.plan.names)[:1]

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        predict_cases(predictor, cases, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_kill_leaves_no_partial_output(exported, folder, tmp_path):
    output = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "veloxseg", *command(exported["openvino"], folder, output)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(output.glob("*.nii.gz")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for mask in output.glob("[!.]*.nii.gz"):  # whatever is there, is whole
        assert read_label(mask).array.shape == (48, 40, 30)
    assert main(command(exported["openvino"], folder, output, "--quiet")) == 0
    assert len(list(output.glob("[!.]*.nii.gz"))) == 3


def test_one_volume_of_a_4d_file_is_picked_by_a_flag(
    model: Path, case: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ct = nib.load(case["ct"])
    voxels = ct.get_fdata().astype(np.float32)
    nib.save(nib.Nifti1Image(np.stack([voxels * 0 + 1, voxels], -1), ct.affine), tmp_path / "ct4d.nii.gz")
    inputs = ["-i", f"ct={tmp_path / 'ct4d.nii.gz'}", "-i", f"pet={case['pet']}"]
    arguments = ["predict", "-m", str(model), *inputs, "-o", str(tmp_path / "mask.nii.gz"), "--runtime", "torch"]
    assert main(arguments) == 2
    assert "--volume NAME=N" in capsys.readouterr().err
    assert main([*arguments, "--volume", "ct=x"]) == 2
    assert "MODALITY=WHICH" in capsys.readouterr().err
    assert main([*arguments, "--volume", "ct=1"]) == 0
    plain = ["predict", "-m", str(model), "-i", f"ct={case['ct']}", "-i", f"pet={case['pet']}", "--runtime", "torch"]
    assert main([*plain, "-o", str(tmp_path / "plain.nii.gz")]) == 0
    masks = [np.asarray(nib.load(tmp_path / name).dataobj) for name in ("mask.nii.gz", "plain.nii.gz")]
    assert np.array_equal(*masks)


def test_one_file_from_a_modality_that_the_model_does_not_know(exported, folder, tmp_path, capsys):
    scan, mask = folder / "case0_0000.nii.gz", tmp_path / "mask.nii.gz"
    assert main(["predict", "-m", str(exported["openvino"]), "-i", f"mr={scan}", "-o", str(mask)]) == 2
    assert "modality" in capsys.readouterr().err
    assert not mask.exists()
