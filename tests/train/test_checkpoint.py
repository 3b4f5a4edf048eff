"""Files that are whole or not there."""

import json
from pathlib import Path

import pytest
import torch

from support.old_checkpoint import write_old_checkpoint
from veloxseg.errors import ModelError
from veloxseg.train.checkpoint import join, load_checkpoint, load_newest, make_room, prune, save_checkpoint, split

TENSORS = {
    "network.weight": torch.randn(3, 2),
    "optimiser.weight.step": torch.tensor(7.0),
    "average.n_averaged": torch.tensor(7),
    "network.empty": torch.zeros(0),
}


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    state = {"epoch": 3, "sums": [0.1 + 0.2, 1e-300], "best": None}
    found = load_checkpoint(save_checkpoint(tmp_path / "new", 12, state, TENSORS))
    assert found.state == state
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in TENSORS.items())


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, {"epoch": 3}, TENSORS)
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            found = load_checkpoint(path)
        except ModelError:
            continue
        # padding of the header carries nothing
        assert found.state == {"epoch": 3}
        assert all(torch.equal(found.tensors[name], tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize(("key", "value"), [("dtype", "I32"), ("shape", [2, 3]), ("shape", [6]), ("shape", [1, 3, 2])])
def test_a_header_that_changes_type_or_size_is_noticed(tmp_path: Path, key: str, value: object) -> None:
    path = save_checkpoint(tmp_path, 1, {"epoch": 3}, TENSORS)
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["network.weight"][key] = value
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    with pytest.raises(ModelError, match="checksum differs"):
        load_checkpoint(path)


def test_checkpoints_of_version_0_1_0_are_read(tmp_path: Path) -> None:
    write_old_checkpoint(tmp_path / "000000007.safetensors", {"epoch": 3}, TENSORS)
    found = load_newest(tmp_path)
    assert found is not None
    assert found.state == {"epoch": 3}
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in TENSORS.items())
    write_old_checkpoint(tmp_path / "000000007.safetensors", {"epoch": 3}, TENSORS)
    whole = bytearray((tmp_path / "000000007.safetensors").read_bytes())
    whole[-1] ^= 1
    (tmp_path / "000000007.safetensors").write_bytes(whole)
    with pytest.raises(ModelError, match="checksum differs"):
        load_newest(tmp_path)


def test_room_is_made_by_the_oldest_that_is_not_needed(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, step, {"step": step}, TENSORS)
    assert make_room(tmp_path, {15, 5})
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [5, 15]
    assert not make_room(tmp_path, {15, 5})
    assert make_room(tmp_path, {15})
    assert not make_room(tmp_path, {15})


def test_the_newest_two_and_the_best_stay(tmp_path: Path) -> None:
    for step in (5, 10, 15, 100):
        save_checkpoint(tmp_path, step, {"step": step}, TENSORS)
    (tmp_path / ".part-left-by-a-kill.safetensors").write_bytes(b"half")
    prune(tmp_path, best_step=5)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{step:09d}.safetensors" for step in (5, 15, 100)]
    newest = load_newest(tmp_path)
    assert newest is not None
    assert newest.state["step"] == 100


def test_no_checkpoint_yet(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "nothing") is None


def test_nothing_that_is_not_a_number_gets_into_the_state(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        save_checkpoint(tmp_path, 1, {"loss": float("nan")}, TENSORS)


def test_join_and_split_are_inverse() -> None:
    groups = {"a": {"x.y": torch.ones(1)}, "ab": {"z": torch.ones(2)}}
    joined = join(**groups)
    assert set(joined) == {"a.x.y", "ab.z"}
    assert split(joined, "a").keys() == {"x.y"}
