"""Whatever happens to a training, it goes on, and ends with the same weights to the bit."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from veloxseg import files
from veloxseg.errors import ConfigError, DatasetError, ModelError, OutputError
from veloxseg.modelfolder import ModelFolder
from veloxseg.networks import load_network
from veloxseg.train.loop import train

HERE = Path(__file__).parent


def newest(run: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(max((run / "checkpoints").glob("*.safetensors")))
    return {name: tensor.clone() for name, tensor in tensors.items()}  # not a view of a file that may change


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def killed_training(prepared: Path, run: Path, kills: int, seed: int) -> list[str]:
    command = [sys.executable, str(HERE / "killing.py"), str(prepared), str(run), str(kills), str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr
    deaths: list[str] = json.loads(done.stdout.splitlines()[-1])
    return deaths


@pytest.mark.slow
def test_twenty_four_kills_change_nothing(prepared: Path, tmp_path: Path) -> None:
    deaths = killed_training(prepared, tmp_path / "killed", kills=24, seed=1)
    assert len(deaths) >= 20
    assert len(set(deaths)) >= 5  # steps, and all around saving
    assert "amid write" in deaths
    assert killed_training(prepared, tmp_path / "whole", kills=0, seed=1) == []
    assert same(newest(tmp_path / "killed"), newest(tmp_path / "whole"))
    models = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("killed", "whole")]
    assert same(*models)
    rows = [(tmp_path / name / "progress.csv").read_text().splitlines() for name in ("killed", "whole")]
    without_seconds = [[row.split(",")[:7] for row in part] for part in rows]
    assert without_seconds[0] == without_seconds[1]
    assert not list((tmp_path / "killed" / "checkpoints").glob(".part-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], number: int
) -> None:
    quick["steps_per_epoch"] = 2
    command = [sys.executable, str(HERE / "signalled.py"), str(prepared), str(tmp_path / "stopped")]
    command += [json.dumps(quick), str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert re.search(r"after 3 steps.*--continue", said["words"])
    assert said["restored"]
    state = train(prepared, tmp_path / "stopped", resume=True)
    assert state.finished
    assert state.steps == 4
    if number == signal.SIGTERM:
        train(prepared, tmp_path / "whole", quick)
        assert same(newest(tmp_path / "stopped"), newest(tmp_path / "whole"))


def test_a_full_disk_keeps_the_previous_checkpoint(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    run = tmp_path / "run"
    original, writes = Path.write_bytes, 0

    def write_bytes(path: Path, data: bytes) -> int:
        nonlocal writes
        writes += 1
        if writes > 2:  # the first checkpoint and its MODEL fit
            original(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_bytes)
        with pytest.raises(OutputError, match="No space left"):
            train(prepared, run, quick | {"epochs": 3})
    assert "training goes on" in capsys.readouterr().err  # after epoch 2; the last save must succeed
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["000000002.safetensors"]
    load_network(ModelFolder.open(run))
    assert train(prepared, run, resume=True).epoch == 3


def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], capsys: Any
) -> None:
    run = tmp_path / "run"
    train(prepared, run, quick)
    before = newest(run)
    last = run / "checkpoints" / "000000004.safetensors"
    whole = last.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        last.write_bytes(damaged)
        state = train(prepared, run, resume=True)
        warning = capsys.readouterr().err
        assert "000000004.safetensors is damaged" in warning
        assert "previous one, 000000002.safetensors" in warning
        assert state.finished
        assert same(newest(run), before)
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ModelError, match="no older one"):
        train(prepared, run, resume=True)


def test_continuing_with_other_settings_or_data_is_refused(
    prepared: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    train(prepared, run, quick | {"epochs": 1})
    with pytest.raises(OutputError, match="--continue"):
        train(prepared, run, quick)
    with pytest.raises(ConfigError, match=r"batch \(2 stored, 4 asked\)"):
        train(prepared, run, {"batch": 4}, resume=True)
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"data": "other"}))
    with pytest.raises(DatasetError, match="not the data"):
        train(prepared, run, resume=True)


def test_two_trainings_in_one_folder_are_refused(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CLAIM_SECONDS", 0.0)
    run = tmp_path / "run"
    train(prepared, run, quick | {"epochs": 1})
    before = (run / "settings.json").stat().st_mtime_ns
    with files.claimed(run), pytest.raises(OutputError, match="another process"):
        train(prepared, run, resume=True)
    assert (run / "settings.json").stat().st_mtime_ns == before


def test_a_model_that_a_kill_left_old_is_repaired(
    prepared: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    train(prepared, run, quick | {"epochs": 1})
    weights = run / "model" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4] + b"\0\0\0\0")
    train(prepared, run, resume=True)
    assert weights.read_bytes() == whole


def test_a_checkpoint_of_another_network_lists_what_differs(
    prepared: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    train(prepared, run, quick | {"epochs": 1})
    settings = json.loads((run / "settings.json").read_text())
    settings["settings"]["teachers"] = False
    (run / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"does not fit settings.json in model\.student"):
        train(prepared, run, resume=True)
