"""A whole benchmark, small: 32³ patches, and a light peer as the yardstick."""

import json
from pathlib import Path

import pytest

from veloxseg.benchmark import run
from veloxseg.benchmark.models import find_model, own_models, write_folder
from veloxseg.benchmark.plots import plot_all
from veloxseg.benchmark.report import lines, machine_line, markdown
from veloxseg.cli import main
from veloxseg.errors import ConfigError


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("models") / "mine"
    model = find_model("s", patch=(32, 32, 64))
    write_folder(model, model.build(), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "YARDSTICK", "segformer-3d")  # lighter to import than MONAI
        return run.benchmark(["slim-unetr"], ["openvino"], [1], own=own_models([str(folder)]), patch=(32, 32, 32))


def test_rows_hold_what_the_interface_promises(rows: list[dict]) -> None:
    json.dumps(rows, allow_nan=False)
    for row in rows:
        assert row["threads"] == 1
        for name in ("parameters", "macs", "macs_as_published", "patches_per_second", "peak_rss_mb", "file_mb"):
            assert row[name] > 0, name
        assert row["patches_per_second_low"] <= row["patches_per_second"] <= row["patches_per_second_high"]
        assert row["machine"]["cores"] >= 1


def test_the_yardstick_takes_part_unasked_and_measures_one(rows: list[dict]) -> None:
    (yardstick,) = (row for row in rows if row["model"] == "segformer-3d")
    assert yardstick["runtime"] == "torch"
    assert yardstick["times_unet"] == pytest.approx(1.0)


def test_what_is_stored_is_the_parameters(rows: list[dict]) -> None:
    for row in rows:
        assert row["file_mb"] == pytest.approx(4 * row["parameters"] / 2**20, rel=0.5)


def test_an_exported_graph_runs_without_torch(rows: list[dict]) -> None:
    memory = {row["runtime"]: row["peak_rss_mb"] for row in rows}
    assert memory["openvino"] < memory["torch"]


def test_tables_have_a_line_per_row(rows: list[dict]) -> None:
    assert len(lines(rows)) == len(rows) + 1
    table = markdown(rows).splitlines()
    assert len(table) == len(rows) + 2
    assert len({line.count("|") for line in table}) == 1
    assert "training step s" not in table[0]  # nothing was measured there
    assert "input" in table[0]  # the own model has another one
    assert "input" not in markdown([row for row in rows if row["title"] != "mine"]).splitlines()[0]
    assert "core(s)" in machine_line(rows[0]["machine"])


def test_the_fastest_stands_first(rows: list[dict]) -> None:
    fastest = max(rows, key=lambda row: row["patches_per_second"])
    assert lines(rows)[1].split()[0] == fastest["title"].split()[0]


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(ConfigError, match="no runtime 'tpu'; choose from torch"):
        run.benchmark(["b"], ["tpu"])


@pytest.mark.parametrize("arguments", [["--models", "bb"], ["--threads", "0"], ["--models", ","], ["--runtimes", "x"]])
def test_wrong_names_end_with_code_2_and_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_unwritable_result_is_noticed_before_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["benchmark", "--json", str(tmp_path / "file" / "out.json")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_an_own_model_is_measured_on_its_own_input(rows: list[dict]) -> None:
    (mine,) = (row for row in rows if row["title"] == "mine")
    assert (mine["runtime"], mine["input"], mine["device"]) == ("openvino", [2, 32, 32, 64], "cpu")
    assert mine["patches_per_second"] > 0
    assert mine["peak_gpu_mb"] is None  # no GPU was used, so no figure is told


def test_pictures_of_what_was_measured(rows: list[dict], tmp_path: Path) -> None:
    assert {path.name for path in plot_all(rows, tmp_path)} >= {"throughput.png", "memory.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "all"], "--task all is for --count-only"),
        (["--device", "cuda:77", "--models", "s"], "device 'cuda:77' cannot be used"),
        (["-m", "nowhere"], "nowhere does not exist"),
        (["--count-only", "--models", "slim-unet"], "did you mean slim-unetr"),
        (["--count-only", "--models", "b", "--patch", "33", "32", "32"], "not divisible by 32"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
