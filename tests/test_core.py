"""The core alone: from scans to a report where torch, SimpleITK, OpenVINO and onnxruntime cannot be imported."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.models import build_plan, build_scans, save_model
from veloxseg.extras import EXTRAS
from veloxseg.image import read, read_label, write
from veloxseg.runtimes.native.runtime import is_built

BLOCKED = sorted({module for extra in EXTRAS.values() for module in extra.modules})
PROGRAM = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
from veloxseg.cli import main
sys.exit(main(sys.argv[1:]))
"""
SIZE = ("--size", "48", "40", "64")


def core(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def done(*arguments: object) -> str:
    result = core(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def scans(folder: Path) -> list[str]:
    """The files of one case, as `predict -i` takes them."""
    files = {name: folder / f"{name}.nii.gz" for name in ("ct", "pet")}
    for name, volume in build_scans((32, 32, 32)).items():
        write(volume, files[name])
    return [part for name, path in files.items() for part in ("-i", f"{name}={path}")]


@pytest.mark.skipif(not is_built(), reason="the kernels were not built: no C compiler")
def test_from_scans_to_a_report_without_extras(tmp_path: Path) -> None:
    from veloxseg.cli import main

    data, model, masks = tmp_path / "data", tmp_path / "model", tmp_path / "masks"
    done("phantom", data, "--cases", 3, "--test-cases", 2, *SIZE)
    done("check", data)
    done("prepare", data, "-o", tmp_path / "prepared", "--patch", 32, 32, 32)
    save_model(model, build_plan(patch=(32, 32, 32)))
    assert "native" in done("info", model)
    done("predict", "-m", model, "-i", data / "imagesTs", "-o", masks)
    done("evaluate", "-p", masks, "-l", data / "labelsTs", "-o", tmp_path / "report")
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    done("export", "-m", model, "-o", tmp_path / "native", "--format", "native")
    done("import", next((data / "imagesTs").glob("*.nii.gz")), "-o", tmp_path / "scan.nrrd")

    words = ["predict", "-m", model, "-i", data / "imagesTs", "-o", tmp_path / "all", "--quiet"]
    assert main([str(word) for word in words]) == 0
    names = sorted(path.name for path in masks.glob("*.nii.gz"))
    assert len(names) == 2
    for name in names:
        assert (masks / name).read_bytes() == (tmp_path / "all" / name).read_bytes()
    assert any(read_label(masks / name).array.any() for name in names)
    assert np.isfinite(read(tmp_path / "scan.nrrd").array).all()


def test_info_lists_what_is_there() -> None:
    known = json.loads(done("info", "--json"))
    assert known["extras"] == dict.fromkeys(EXTRAS, False)
    assert "pip install 'veloxseg[openvino]'" in known["runtimes"]["openvino"]
    assert len(known["presets"]) == 6


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["train", "PREPARED", "-o", "RUN"], "train"),
        (["demo"], "train"),
        (["benchmark"], "train"),
        (["convert", "x.pth", "-o", "MODEL"], "train"),
        (["prepare", "DATA", "-o", "PREPARED", "--register", "rigid"], "itk"),
        (["predict", "-m", "MODEL", "SCANS", "-o", "y", "--runtime", "openvino"], "openvino"),
        (["predict", "-m", "MODEL", "SCANS", "-o", "y", "--runtime", "onnx"], "onnx"),
        (["predict", "-m", "MODEL", "SCANS", "-o", "y", "--runtime", "torch"], "train"),
        (["export", "-m", "MODEL", "-o", "y", "--format", "onnx"], "onnx"),
        (["export", "-m", "MODEL", "-o", "y", "--format", "monai-bundle"], "train"),
        (["serve", "-m", "MODEL", "-o", "y"], "serve"),
        (["study", "transfer", "PREPARED", "-o", "STUDY"], "train"),
        (["inspect", "attention", "-m", "MODEL", "PREPARED", "-o", "y"], "train"),
        (["prune", "-m", "MODEL", "PREPARED", "-o", "y", "--to", "1M"], "train"),
        (["prompt", "DATA", "-w", "x.pth", "-o", "y", "--modality", "ct"], "train"),
        (["nnunet", "train", "1", "3d_fullres", "0"], "train"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_needs_an_extra_names_it_in_one_line(arguments: list[str], extra: str, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", build_plan(patch=(32, 32, 32)))
    places = {"MODEL": [str(model)], "SCANS": scans(tmp_path), "y": [str(tmp_path / "y")]}
    result = core(*(part for word in arguments for part in places.get(word, [word])))
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert f"pip install 'veloxseg[{extra}]'" in result.stderr


def test_an_api_that_needs_torch_says_so() -> None:
    asks = "import veloxseg\ntry: veloxseg.VeloxSeg\nexcept ImportError as error: print(error)"
    code = PROGRAM.rpartition("sys.exit")[0] + asks
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'veloxseg[train]'" in done.stdout


def test_where_nothing_computes_one_line_says_so(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", build_plan(patch=(32, 32, 32)))
    program = PROGRAM.replace(
        "from veloxseg.cli", "import veloxseg.runtimes.native.runtime as r\nr.kernels = lambda: None\nfrom veloxseg.cli"
    )
    words = ["predict", "-m", str(model), *scans(tmp_path), "-o", str(tmp_path / "o")]
    result = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "nothing here can compute" in result.stderr
    assert "pip install 'veloxseg[train]'" in result.stderr
