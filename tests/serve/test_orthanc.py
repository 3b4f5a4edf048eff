"""With a real PACS: Orthanc sends a study, and has SEG and SR of it in the end, valid, committed, and once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from veloxseg.image import read, read_label
from veloxseg.predict.predictor import segment

pytest.importorskip("pynetdicom", reason="needs the extra serve; `make test-serve` has it")
PROGRAMS = ("Orthanc", "dciodvfy", "unshare", "ip")
ABSENT = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
pytestmark = [
    pytest.mark.shared,
    pytest.mark.slow,
    pytest.mark.skipif(bool(ABSENT) or os.geteuid() != 0, reason=f"needs root and {', '.join(PROGRAMS)}"),
]
PLUGIN = Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so")
ROUND = Path(__file__).parents[1] / "support" / "orthanc_round.py"


def faults(path: Path) -> set[str]:
    """What dciodvfy finds wrong with a file."""
    said = subprocess.run(["dciodvfy", path], capture_output=True, text=True, check=False)
    return {line for line in (said.stdout + said.stderr).splitlines() if line.startswith("Error")}


@pytest.mark.parametrize("target", ["ORTHANC@127.0.0.1:4242", "http://127.0.0.1:8042/dicom-web"])
def test_a_study_from_orthanc_comes_back_as_seg_and_sr(
    quick_model: Path, shared: Path, tmp_path: Path, target: str
) -> None:
    """By C-STORE with storage commitment, and by STOW-RS."""
    if target.startswith("http") and not PLUGIN.is_file():
        pytest.skip("needs orthanc-dicomweb")
    study = shared / "data" / "sts_dicom" / "STS_002"
    program = f'ip link set lo up && exec "$0" {ROUND} "$1" "$2" "$3" "$4"'
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", program, sys.executable, str(quick_model), str(study), str(tmp_path), target],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["cases"] == 1
    assert told["after"] == told["before"] + 2
    assert {name: len(uids) for name, uids in told["found"].items()} == {"SEG": 1, "SR": 1}
    expected = segment({"ct": study / "CT" / "image", "pet": study / "PET" / "image"}, quick_model, threads=1)
    ct = read(study / "CT" / "image")
    assert np.array_equal(read_label(tmp_path / "SEG.dcm", reference=ct).array, expected.array)
    own = faults(next((study / "CT" / "image").iterdir()))
    for name in ("SEG", "SR"):
        assert faults(tmp_path / f"{name}.dcm") <= own
    assert "STS_002" not in (tmp_path / "server.log").read_text()
