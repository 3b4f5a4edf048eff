"""Lies in what holds numbers: safetensors, graphs of other runtimes, and single bits of any file that we wrote."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.attack import Attack, veloxseg
from attacks.bench import Bench, predict, train
from attacks.texts import lie_in_json
from runtimes.test_hostile import DAMAGE, GRAPHS, write_onnx
from support.models import FORMS
from support.scan_fuzz import mutate
from veloxseg.runtimes import RUNTIMES

DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "X"]


def safetensors(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """The weights of a model, those of the native runtime, a checkpoint, or a prepared case."""
    told, path, attack = rng.choice([_weights, _native, _checkpoint, _case])(bench, folder)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + length], data[8 + length :]
    how = rng.choice(list(LIES))
    header, values = LIES[how](header, values, rng)
    claimed = rng.choice([0, 1, length + 8, 2**24, 2**63 - 1, 2**64 - 1]) if how == "length" else len(header)
    path.write_bytes(claimed.to_bytes(8, "little") + header + values)
    return attack(f"{told}: {how}")


def _in_header(change: Callable[[dict[str, Any], random.Random], object]) -> Any:
    def lie(header: bytes, values: bytes, rng: random.Random) -> tuple[bytes, bytes]:
        entries = json.loads(header)
        change(entries, rng)
        return json.dumps(entries).encode(), values

    return lie


def _any(entries: dict[str, Any], rng: random.Random) -> tuple[str, Any]:
    name = rng.choice([name for name in entries if name != "__metadata__"])
    return name, entries[name]


def _swap(entries: dict[str, Any], rng: random.Random) -> None:
    (first, a), (second, b) = _any(entries, rng), _any(entries, rng)
    entries[first], entries[second] = b, a


LIES: dict[str, Callable[[bytes, bytes, random.Random], tuple[bytes, bytes]]] = {
    "cut": lambda h, v, rng: (h, v[: rng.randrange(len(v))]),
    "longer": lambda h, v, rng: (h, v + bytes(rng.choice([1, 64]))),
    "length": lambda h, v, rng: (h, v),
    "damaged header": lambda h, v, rng: (mutate(h, rng), v),
    "lie in header": lambda h, v, rng: (lie_in_json(h, rng)[0], v),
    "another type": _in_header(lambda e, rng: _any(e, rng)[1].update(dtype=rng.choice(DTYPES))),
    "another shape": _in_header(
        lambda e, rng: _any(e, rng)[1].update(shape=rng.choice([[], [0], [1, 1], [-1], [2**62, 4], [3] * 40, ["a"]]))
    ),
    "turned shape": _in_header(lambda e, rng: _any(e, rng)[1]["shape"].reverse()),
    "other offsets": _in_header(
        lambda e, rng: _any(e, rng)[1].update(data_offsets=rng.choice([[0, 4], [4, 0], [-8, -4], [0, 2**62], [0], "x"]))
    ),
    "another name": _in_header(lambda e, rng: e.update({rng.choice(["x", "../x", ""]): e.pop(_any(e, rng)[0])})),
    "missing": _in_header(lambda e, rng: e.pop(_any(e, rng)[0])),
    "swapped": _in_header(_swap),
    "no number": lambda h, v, rng: (h, v[: (at := rng.randrange(len(v) // 4) * 4)] + b"\0\0\xc0\x7f" + v[at + 4 :]),
}

Told = tuple[str, Path, Callable[[str], Attack]]


def _weights(bench: Bench, folder: Path, runtime: str = "torch") -> Told:
    source = bench.model if runtime == "torch" else bench.exported(runtime)
    model = shutil.copytree(source, folder / "model")
    command = [*predict(model, bench.scans, folder / "out" / "mask.nii.gz"), "--runtime", runtime]
    name = "model.safetensors" if runtime == "torch" else RUNTIMES[runtime].files[0]

    def attack(told: str) -> Attack:
        return Attack(told=told, act=veloxseg(*command), inputs=(model, bench.scans), output=folder / "out")

    return name, model / name, attack


def _native(bench: Bench, folder: Path) -> Told:
    return _weights(bench, folder, FORMS[0]) if FORMS[0] == "native" else _weights(bench, folder)


def _checkpoint(bench: Bench, folder: Path) -> Told:
    run = shutil.copytree(bench.run, folder / "run")
    path = max((run / "checkpoints").glob("*.safetensors"))
    return "checkpoint", path, lambda told: _training(bench.prepared, run, told)


def _case(bench: Bench, folder: Path) -> Told:
    prepared = shutil.copytree(bench.prepared, folder / "prepared")
    path = prepared / "data" / "a.safetensors"
    return "prepared case", path, lambda told: _training(prepared, folder / "run", told)


def _training(prepared: Path, run: Path, told: str) -> Attack:
    return Attack(told=told, act=lambda: train(prepared, run, resume=True), inputs=(prepared,))


def graph(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A graph that is damaged, or is the graph of something else."""
    runtime = rng.choice([form for form in FORMS if form != "native"])
    model = shutil.copytree(bench.exported(runtime), folder / "model")
    name = rng.choice(RUNTIMES[runtime].files)
    path = model / name
    how = rng.choice([*DAMAGE, *GRAPHS, "mutated", "mutated"])
    if how == "mutated":
        path.write_bytes(mutate(path.read_bytes(), rng))
    elif how in DAMAGE:
        path.write_bytes(DAMAGE[how](path.read_bytes()))
    else:
        for file in RUNTIMES[runtime].files:
            (model / file).unlink()
        write_onnx(model / "model.onnx", *GRAPHS[how])
        if runtime == "openvino":
            from veloxseg.runtimes.openvino import quiet_openvino

            openvino = quiet_openvino()
            openvino.save_model(openvino.Core().read_model(model / "model.onnx"), model / "model.xml")
    command = [*predict(model, bench.scans, folder / "out" / "mask.nii.gz"), "--runtime", runtime]
    told = f"{runtime}: {how} ({name})"
    return Attack(told=told, act=veloxseg(*command), inputs=(model, bench.scans), output=folder / "out")


def flip(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """One bit of a file that we wrote: a checkpoint, a prepared case, the weights, a mask, a record."""
    kind = rng.choice(["checkpoint", "case", "weights", "native", "mask", "record"])
    if kind in ("mask", "record"):
        return _flipped_result(bench, folder, rng, kind)
    makers = {"checkpoint": _checkpoint, "case": _case, "weights": _weights, "native": _native}
    told, path, attack = makers[kind](bench, folder)
    return attack(f"{told}: bit {_flip(path, rng)}")


def _flipped_result(bench: Bench, folder: Path, rng: random.Random, kind: str) -> Attack:
    """A prediction that is asked for again: its mask is never other than it was, unless the program says so."""
    output = folder / "out"
    done = bench.once("done", lambda path: veloxseg(*predict(bench.quick_model, bench.scans, path / "mask.nii.gz"))())
    shutil.copytree(done, output)
    bit = _flip(output / ("mask.nii.gz" if kind == "mask" else "mask.json"), rng)
    command = veloxseg(*predict(bench.quick_model, bench.scans, output / "mask.nii.gz"))

    def wrong() -> str:
        same = (output / "mask.nii.gz").read_bytes() == (done / "mask.nii.gz").read_bytes()
        return "" if same else "another mask, and exit code 0"

    return Attack(told=f"{kind}: bit {bit}", act=command, inputs=(bench.scans,), wrong=wrong)


def _flip(path: Path, rng: random.Random) -> int:
    data = bytearray(path.read_bytes())
    at = rng.randrange(min(len(data), rng.choice([64, 4096, len(data)])) * 8)
    data[at // 8] ^= 1 << (at % 8)
    path.write_bytes(data)
    return at
