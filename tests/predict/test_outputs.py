"""Outputs are planned before work starts: no input and no file of others is ever overwritten, and done means done."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.errors import ConfigError, OutputError
from veloxseg.files import sha256
from veloxseg.image import read_label, write
from veloxseg.predict.predictor import Options, Predictor
from veloxseg.predict.scans import Scans


@pytest.fixture
def folder(tmp_path: Path, make_scans) -> Path:
    """Two cases in nnU-Net naming."""
    target = tmp_path / "in"
    target.mkdir()
    for number in range(2):
        for channel, volume in enumerate(make_scans((48, 40, 30), seed=number).values()):
            write(volume, target / f"case{number}_{channel:04d}.nii.gz")
    return target


@pytest.fixture
def graph(exported: dict[str, Path]) -> Path:
    return exported["openvino"]


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def predict(graph: Path, inputs: list[str], output: Path, *more: str) -> int:
    return main(["predict", "-m", str(graph), *inputs, "-o", str(output), "--threads", "1", "--quiet", *more])


def by_name(case: dict[str, Path]) -> list[str]:
    return [text for name, path in case.items() for text in ("-i", f"{name}={path}")]


@pytest.mark.parametrize("output", ["", "pet.nii.gz", "ct.nii.gz"])
def test_an_input_scan_is_never_overwritten(graph, case, output, capsys):
    """F1: `-o` is the scans' own folder (the mask would be ct.nii.gz), or a scan itself."""
    root = case["ct"].parent
    before = hashes(root)
    assert predict(graph, by_name(case), root / output) == 2
    assert "is an input scan" in capsys.readouterr().err
    assert hashes(root) == before


def test_a_link_to_a_scan_is_that_scan(graph, case, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mask.nii.gz").symlink_to(case["ct"])
    assert predict(graph, by_name(case), tmp_path / "out" / "mask.nii.gz") == 2
    assert "is an input scan" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["case0.nii.gz", "case0.json", "case0.png", "case0_statistics.json"])
def test_files_that_are_not_ours_are_never_replaced(graph, folder, tmp_path, name, capsys):
    """F1: dataset.json of a case called dataset, a mask that somebody drew."""
    output = tmp_path / "out"
    output.mkdir()
    (output / name).write_text('{"channel_names": {"0": "CT"}}')
    assert predict(graph, ["-i", str(folder)], output, "--preview", "--statistics") == 2
    assert name in capsys.readouterr().err
    assert (output / name).read_text() == '{"channel_names": {"0": "CT"}}'
    assert [path.name for path in output.iterdir()] == [name]


def test_a_mask_that_was_corrected_by_hand_stays(graph, folder, tmp_path, capsys):
    output = tmp_path / "out"
    assert predict(graph, ["-i", str(folder)], output) == 0
    mask = read_label(output / "case0.nii.gz")
    mask.array[:5] = 0
    write(mask, output / "case0.nii.gz")
    corrected = sha256(output / "case0.nii.gz")
    assert predict(graph, ["-i", str(folder)], output) == 2
    assert "not as veloxseg wrote it" in capsys.readouterr().err
    assert sha256(output / "case0.nii.gz") == corrected


def test_scans_that_changed_under_the_same_names_and_times(graph, folder, tmp_path, capsys):
    """F8: another patient's files, copied with their times."""
    output = tmp_path / "out"
    assert predict(graph, ["-i", str(folder)], output) == 0
    first = read_label(output / "case0.nii.gz").array
    for channel in ("0000", "0001"):
        old = (folder / f"case0_{channel}.nii.gz").stat()
        shutil.copy(folder / f"case1_{channel}.nii.gz", folder / f"case0_{channel}.nii.gz")
        os.utime(folder / f"case0_{channel}.nii.gz", ns=(old.st_atime_ns, old.st_mtime_ns))
    assert predict(graph, ["-i", str(folder)], output) == 0
    assert "case0: its scans are not those" in capsys.readouterr().err
    second = read_label(output / "case0.nii.gz").array
    assert not np.array_equal(first, second)
    assert np.array_equal(second, read_label(output / "case1.nii.gz").array)


def test_another_patient_with_files_of_the_same_name_is_refused(graph, case, make_scans, tmp_path, capsys):
    """N1: anna/ct.nii.gz and ben/ct.nii.gz into one folder."""
    output = tmp_path / "out"
    assert predict(graph, by_name(case), output) == 0
    before = hashes(output)
    ben = {name: tmp_path / "ben" / f"{name}.nii.gz" for name in case}
    (tmp_path / "ben").mkdir()
    for name, volume in make_scans((48, 40, 30), seed=5).items():
        write(volume, ben[name])
    assert predict(graph, by_name(ben), output) == 2
    assert "was made from other scans" in capsys.readouterr().err
    assert hashes(output) == before
    assert predict(graph, by_name(case), output) == 0  # the first patient's is done
    assert hashes(output) == before


def test_extras_that_are_asked_for_later_are_written(graph, folder, tmp_path):
    """F8: "done" means all that is asked for, so a preview that is missing is made."""
    output = tmp_path / "out"
    assert predict(graph, ["-i", str(folder)], output) == 0
    assert predict(graph, ["-i", str(folder)], output, "--preview") == 0
    assert (output / "case0.png").is_file()
    assert predict(graph, ["-i", str(folder)], output, "--statistics") == 0
    assert predict(graph, ["-i", str(folder)], output, "--preview") == 0  # the picture of before is still ours


def test_a_mask_that_was_damaged_or_lost_is_made_anew(graph, folder, tmp_path):
    output = tmp_path / "out"
    assert predict(graph, ["-i", str(folder)], output) == 0
    before = hashes(output)
    (output / "case1.nii.gz").unlink()
    assert predict(graph, ["-i", str(folder)], output) == 0
    assert hashes(output)["case1.nii.gz"] == before["case1.nii.gz"]


def test_a_kill_between_record_and_mask_can_be_gone_on_from(graph, folder, tmp_path, monkeypatch):
    """The record is written first; what it lists as replaced is still ours."""
    output = tmp_path / "out"
    assert predict(graph, ["-i", str(folder)], output) == 0

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("veloxseg.predict.outputs.os.replace", killed)
        assert predict(graph, ["-i", str(folder)], output, "--keep-largest") == 130
    assert predict(graph, ["-i", str(folder)], output, "--keep-largest") == 0
    for number in range(2):
        record = json.loads((output / f"case{number}.json").read_text())
        assert record["outputs"][f"case{number}.nii.gz"] == sha256(output / f"case{number}.nii.gz")
        assert record["options"]["keep_largest"] is True


def test_a_case_with_glob_characters_is_done(graph, folder, tmp_path, capsys):
    """F20: `case[1]` was never done."""
    for path in list(folder.iterdir()):
        path.rename(folder / path.name.replace("case", "case[1]"))
    assert predict(graph, ["-i", str(folder)], tmp_path / "out") == 0
    arguments = ["predict", "-m", str(graph), "-i", str(folder), "-o", str(tmp_path / "out"), "--threads", "1"]
    assert main(arguments) == 0
    assert "2 of 2 cases are done already" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"overlap": float("nan")}, {"remove_smaller": -5}, {"max_ram": float("inf")}])
def test_options_are_finite_and_in_range(options):
    """F13: a record that JSON cannot hold is refused before anything is computed."""
    with pytest.raises(ConfigError, match="expected"):
        Options(**options)


def test_saving_over_a_scan_is_refused_in_python_too(graph, case):
    result = Predictor([graph], threads=1)(Scans(case))
    with pytest.raises(OutputError, match="is an input scan"):
        result.save(case["pet"])
    assert "Segmentation(80×70×50: label1" in repr(result)


def test_a_pipe_that_nobody_reads_stops_nothing(graph, folder, tmp_path):
    """F11: `predict | head -1` wrote no mask and ended with 0."""
    command = [sys.executable, "-m", "veloxseg", "predict", "-m", str(graph), "-i", str(folder), "-o"]
    process = subprocess.Popen(
        [*command, str(tmp_path / "out"), "--threads", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.close()
    code = process.wait(timeout=120)
    masks = list((tmp_path / "out").glob("*.nii.gz"))
    assert (code, len(masks)) == (0, 2)


def test_max_ram_keeps_the_check_for_swapped_scans(graph, case, monkeypatch):
    """F12: scans that are read one at a time are compared all the same."""
    predictor = Predictor([graph], threads=1)
    expected = predictor.estimate(Scans(case))
    # as for a case that is large enough for reading to be what takes most
    monkeypatch.setattr(predictor, "estimate", lambda scans: replace(expected, frugal_bytes=expected.bytes / 2))
    predictor.options = Options(max_ram=0.75 * expected.gib)
    swapped = Scans({"ct": case["pet"], "pet": case["ct"]})
    with pytest.raises(Exception, match="look swapped"):
        predictor(swapped)
    assert swapped.frugal
