"""A whole benchmark, small: 32³ patches, and a light peer as the yardstick."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from veloxseg.benchmark import run
from veloxseg.benchmark.models import MODELS
from veloxseg.benchmark.report import lines, machine_line, markdown
from veloxseg.cli import main
from veloxseg.errors import ConfigError


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    with pytest.MonkeyPatch.context() as patch:
        small = {name: replace(model, patch=(32, 32, 32)) for name, model in MODELS.items()}
        patch.setattr(run, "find_model", small.__getitem__)
        patch.setattr(run, "YARDSTICK", "segformer-3d")  # lighter to import than MONAI
        return run.benchmark(["slim-unetr"], ["openvino"], [1])


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
