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

from support.old_checkpoint import write_old_checkpoint
from veloxseg import files
from veloxseg.errors import ConfigError, DatasetError, ModelError, OutputError
from veloxseg.kernels.library import training_kernels
from veloxseg.model import jlc
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.train import loop
from veloxseg.train.checkpoint import load_checkpoint
from veloxseg.train.loop import train

SUPPORT = Path(__file__).parents[1] / "support"


def newest(run: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(max((run / "checkpoints").glob("*.safetensors")))
    return {name: tensor.clone() for name, tensor in tensors.items()}  # not a view of a file that may change


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def killed_training(prepared: Path, run: Path, kills: int, seed: int) -> list[str]:
    command = [sys.executable, str(SUPPORT / "killing.py"), str(prepared), str(run), str(kills), str(seed)]
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], number: int
) -> None:
    quick |= {"steps_per_epoch": 2, "optimiser": "muon"}
    command = [sys.executable, str(SUPPORT / "signalled.py"), str(prepared), str(tmp_path / "stopped")]
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


def test_kernels_of_training_go_on_to_the_bit(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preset B fills vectors; with teachers and dropout it is stopped after one of four steps, then continued."""
    if training_kernels() is None:
        pytest.skip("the kernels were not built: no C compiler")
    called: list[str] = []
    for name in ("group_branches", "feed_forward"):
        own = getattr(jlc, name)
        monkeypatch.setattr(jlc, name, lambda *values, own=own, name=name: (called.append(name), own(*values))[1])
    quick |= {"model": "b", "dropout": 0.1, "epochs": 2, "steps_per_epoch": 2, "overlap": 0.0}
    train(prepared, tmp_path / "whole", quick)
    assert {"group_branches", "feed_forward"} == set(called)
    train_step = loop.train_step

    def interrupted(trainer: Any, batch: dict[str, Any]) -> float:
        loss = train_step(trainer, batch)
        trainer.save(required=True)
        raise KeyboardInterrupt if trainer.state.steps == 1 else AssertionError(loss)

    monkeypatch.setattr(loop, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(prepared, tmp_path / "stopped", quick)
    monkeypatch.setattr(loop, "train_step", train_step)
    assert train(prepared, tmp_path / "stopped", resume=True).steps == 4
    assert same(newest(tmp_path / "stopped"), newest(tmp_path / "whole"))


def started(prepared: Path, run: Path, *, before: str = "", **streams: Any) -> subprocess.Popen[bytes]:
    """`veloxseg train` of the tiny network, in a process of its own that first runs `before`."""
    script = (
        f"{before}\nimport sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from tiny_training import TINY\n"
        "from veloxseg.model.config import PRESETS\n"
        "PRESETS['tiny'] = TINY\n"
        "from veloxseg.cli import main\n"
        "sys.exit(main())\n"
    )
    options = ["--model", "tiny", "--epochs", "2", "--set", "teachers=no", "--set", "overlap=0", "--set", "threads=1"]
    command = [sys.executable, "-c", script, "train", str(prepared), "-o", str(run), *options]
    if "steps" in streams:
        command += ["--set", f"steps_per_epoch={streams.pop('steps')}"]
    return subprocess.Popen(command, start_new_session=True, **streams)


def test_a_closed_terminal_saves(prepared: Path, tmp_path: Path) -> None:
    """The terminal is gone: SIGHUP comes, and every word said from then on fails with EIO."""
    ours, theirs = os.openpty()
    take_terminal = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = started(prepared, tmp_path / "run", before=take_terminal, steps=5000, **streams)
    try:
        os.close(theirs)
        seen = b""
        while b"Dice loss" not in seen:  # the title of a column: a step was made
            seen += os.read(ours, 4096)
        os.close(ours)
        assert process.wait(timeout=120) == 130
    finally:
        process.kill()
        process.wait()
    newest(tmp_path / "run")


def test_a_training_goes_on_when_nobody_reads_what_it_says(prepared: Path, tmp_path: Path) -> None:
    """`veloxseg train … | head -1`"""
    with started(prepared, tmp_path / "run", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"tiny")
        process.stdout.close()
        assert process.wait(timeout=120) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["finished"]
    load_network(ModelFolder.open(tmp_path / "run"))


def test_a_training_started_by_nohup_outlives_the_terminal() -> None:
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from veloxseg.train.engine import stop_on_signals\n"
        "with stop_on_signals() as stop: signal.raise_signal(signal.SIGHUP)\n"
        "print(stop.wanted)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


class SmallDisk:
    """Path.write_bytes on a disk for so many bytes of checkpoints and MODEL."""

    def __init__(self, folder: Path, capacity: float) -> None:
        self.folder, self.capacity, self.refused = folder, capacity, 0
        self.original = Path.write_bytes

    def __call__(self, path: Path, data: bytes) -> int:
        used = sum(file.stat().st_size for file in self.folder.rglob("*.safetensors"))
        if used + len(data) > self.capacity:
            self.refused += 1
            self.original(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.original(path, data)


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


@pytest.mark.parametrize("dice", [[0.1, 0.2, 0.3, 0.4], [0.9, 0.1, 0.1, 0.1], [0.1, 0.9, 0.2, 0.1]])
def test_a_disk_that_is_nearly_full_holds_one_checkpoint_less_and_the_model(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dice: list[float]
) -> None:
    quick |= {"epochs": 4, "teachers": False, "steps_per_epoch": 1}
    for name in ("large", "small"):
        scores = iter(dice)
        monkeypatch.setattr(loop, "validate", lambda *_, scores=scores: [{"lesion": next(scores)}])
        if name == "small":
            checkpoint = max((tmp_path / "large" / "checkpoints").iterdir()).stat().st_size
            model = (tmp_path / "large" / "model" / "model.safetensors").stat().st_size
            disk = SmallDisk(tmp_path / "small", 2.2 * checkpoint + 2.1 * model)  # a third one does not fit
            monkeypatch.setattr(Path, "write_bytes", lambda path, data, disk=disk: disk(path, data))
        assert train(prepared, tmp_path / name, quick).finished
    assert disk.refused
    assert same(newest(tmp_path / "small"), newest(tmp_path / "large"))
    assert same(weights_of(tmp_path / "small"), weights_of(tmp_path / "large"))


def test_a_model_that_found_no_room_is_written_when_there_is_room(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    quick |= {"epochs": 3, "steps_per_epoch": 1}
    dice = iter([0.2, 0.9, 0.3])
    monkeypatch.setattr(loop, "validate", lambda *_: [{"lesion": next(dice)}])
    original, models = Path.write_bytes, 0

    def write_bytes(path: Path, data: bytes) -> int:
        nonlocal models
        models += path.parent.name == "model"
        if path.parent.name == "model" and models in (2, 3):  # the second epoch's, and after making room
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    train(prepared, tmp_path / "run", quick)
    assert "training goes on" in capsys.readouterr().err
    folder = ModelFolder.open(tmp_path / "run")
    assert folder.provenance["epochs"] == 2
    best = load_file(tmp_path / "run" / "checkpoints" / "000000002.safetensors")
    student = {name.removeprefix("objective.model.student."): tensor for name, tensor in best.items()}
    assert all(torch.equal(tensor, student[name]) for name, tensor in weights_of(tmp_path / "run").items())


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


def test_a_model_that_a_kill_left_old_is_repaired(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
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


def test_a_checkpoint_with_numbers_of_another_type_is_refused(
    prepared: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    """One of version 0.1.0, whose checksum did not cover types: what it holds is compared with what is expected."""
    run = tmp_path / "run"
    train(prepared, run, quick | {"epochs": 1})
    path = run / "checkpoints" / "000000002.safetensors"
    state, tensors = load_checkpoint(path).state, newest(run)
    for prefix in ("objective", "optimiser"):
        name = next(name for name in tensors if name.startswith(prefix) and tensors[name].ndim > 1)
        write_old_checkpoint(path, state, tensors | {name: tensors[name].view(torch.int32)})
        with pytest.raises(ModelError, match=r"does not fit settings\.json"):
            train(prepared, run, resume=True)
    write_old_checkpoint(path, state, tensors)
    assert train(prepared, run, resume=True).finished
