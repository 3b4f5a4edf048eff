"""A new runtime is one file and one line of the table: the command line, `info` and `predict` then know it."""

import json
import subprocess
import sys
import textwrap

import pytest

from veloxseg.cli import build_parser, main
from veloxseg.runtimes import RUNTIMES, Kind

TOY = '''
    import json
    from pathlib import Path

    import numpy as np

    class ToyRuntime:
        """Two classes by one number: what is hotter than it in the second modality is foreground."""

        name, threads, windows_at_once = "toy", 1, 1

        def __init__(self, threshold):
            self.threshold = threshold

        def __call__(self, window_1CXYZ):
            return np.ascontiguousarray(window_1CXYZ[:, 1:2]) - np.float32(self.threshold)

    def open_toy(graph, folder, *, threads, device="cpu"):
        return ToyRuntime(json.loads(Path(graph).read_text()))

    def write_toy(network, window, into):
        assert tuple(network(window).shape[2:]) == tuple(window.shape[2:])
        (into / "toy.json").write_text("1.5")

    def check_toy(folder):
        """It computes everything."""
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_runtime.py").write_text(textwrap.dedent(TOY))
    monkeypatch.syspath_prepend(tmp_path)
    line = Kind(
        files=("toy.json",),
        opener="toy_runtime:open_toy",
        writer="toy_runtime:write_toy",
        check="toy_runtime:check_toy",
    )
    monkeypatch.setitem(RUNTIMES, "toy", line)


def choices(verb: str, option: str) -> tuple[str, ...]:
    (verbs,) = (action for action in build_parser()._actions if action.dest == "verb")
    (found,) = (action for action in verbs.choices[verb]._actions if option in action.option_strings)
    return tuple(found.choices)


def test_the_table_imports_neither_numpy_nor_torch():
    """A help page reads it."""
    code = "import sys, veloxseg.runtimes; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_command_line_offers_what_the_table_lists():
    assert choices("predict", "--runtime") == ("auto", *RUNTIMES)
    assert choices("export", "--format") == (*RUNTIMES, "monai-bundle")


@pytest.mark.usefixtures("toy")
def test_a_toy_runtime_is_one_file_and_one_line(model, case, tmp_path, capsys):
    assert "toy" in choices("predict", "--runtime")
    assert "toy" in choices("export", "--format")
    assert main(["info", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runtimes here"][-1] == "toy"

    scans = [part for name, path in case.items() for part in ("-i", f"{name}={path}")]
    mask = tmp_path / "out" / "mask.nii.gz"
    assert main(["predict", "-m", str(model), *scans, "-o", str(mask), "--runtime", "toy"]) == 0
    assert "converting model for toy" in capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "mask.json").read_text())
    assert record["runtime"] == {"name": "toy", "threads": 1}
    assert 0 < record["volumes_ml"]["label1"] < 80 * 70 * 50 * 8e-3
