"""Lies in JSON: every description that the program reads, with one value wrong, missing, unknown or endless."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attacks.attack import Attack, veloxseg
from attacks.bench import Bench, predict, train

WRONG: list[Any] = [
    None, True, False, 0, 1, -1, -5, 2, 3, 31, 1e9, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0, 1e-300, 1e308,
    "", "x", "1", "nan", "../../x", "/etc/passwd", "\0", "a\nb", "é" * 300, "x" * 100_000, "=1+1",
    [], [1], [1, 2, 3], [0, 0, 0], [-1, -1, -1], [[1, 1, 1]] * 4, [[-1, -1, 1]] * 4, ["ct"], ["ct", "ct"], [None],
    {}, {"x": 1}, {"background": 0}, {"a": {"b": {"c": []}}},
]  # fmt: skip
RAW = [
    b"", b"null", b"[]", b"{}", b"3", b'"x"', b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"NaN", b'{"a": 1, "a": 2}',
    b"[" * 100_000, b"9" * 5000, b'{"format": ' + b"9" * 5000 + b"}",
]  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside."""
    keys: Any = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [here, *(place for key in keys for place in places(value[key], (*here, key)))]


def lie_in_json(text: bytes, rng: random.Random) -> tuple[bytes, str]:
    """The text with one lie in it, and the lie in words."""
    if rng.random() < 0.06:
        raw = rng.choice([*RAW, text[: rng.randrange(len(text))], text + text])
        return raw, f"the whole is {raw[:20]!r} of {len(raw)} bytes"
    value = json.loads(text)
    place = rng.choice(places(value)[1:])
    inside = value
    for key in place[:-1]:
        inside = inside[key]
    name = ".".join(map(str, place))
    how = rng.random()
    if how < 0.12:
        del inside[place[-1]]
        told = f"{name} is missing"
    elif how < 0.2 and isinstance(inside, dict):
        inside[rng.choice(["unknown", "", "../x", "x" * 5000])] = inside[place[-1]]
        told = f"an unknown key beside {name}"
    elif how < 0.3 and isinstance(inside[place[-1]], int | float):
        inside[place[-1]] *= rng.choice([-1, 0, 0.5, 2, 1000, 10**12])
        told = f"{name} is {inside[place[-1]]}"
    else:
        inside[place[-1]] = rng.choice(WRONG)
        told = f"{name} is {str(inside[place[-1]])[:60]!r}"
    return json.dumps(value).encode(), told


def description(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """One of the files of JSON; the program reads it as it would at work."""
    name = rng.choice(sorted(FILES))
    path, act, inputs, output = FILES[name](bench, folder, rng)
    text, told = lie_in_json(path.read_bytes(), rng)
    path.write_bytes(text)
    return Attack(told=f"{name}: {told}", act=act, inputs=inputs, output=output)


Told = tuple[Path, Callable[[], object], tuple[Path, ...], Path | None]


def _model(bench: Bench, folder: Path, rng: random.Random) -> Told:
    model = shutil.copytree(bench.quick_model, folder / "model")
    command = predict(model, bench.scans, folder / "out" / "mask.nii.gz")
    if rng.random() < 0.5:
        command = ["info", model]
    return model / "model.json", veloxseg(*command), (model, bench.scans), folder / "out"


def _prepared(bench: Bench, folder: Path, file: str) -> Told:
    prepared = shutil.copytree(bench.prepared, folder / "prepared")
    return prepared / file, lambda: train(prepared, folder / "run"), (prepared,), folder / "run"


def _plan(bench: Bench, folder: Path, rng: random.Random) -> Told:
    path, act, inputs, _ = _prepared(bench, folder, "plan.json")
    return path, veloxseg("info", path.parent) if rng.random() < 0.5 else act, inputs, None


def _cases(bench: Bench, folder: Path, rng: random.Random) -> Told:
    return (*_prepared(bench, folder, "cases.json")[:3], None)


def _settings(bench: Bench, folder: Path, rng: random.Random) -> Told:
    run = shutil.copytree(bench.run, folder / "run")
    return run / "settings.json", lambda: train(bench.prepared, run, resume=True), (bench.prepared,), None


def _dataset(bench: Bench, folder: Path, rng: random.Random) -> Told:
    dataset = shutil.copytree(bench.dataset, folder / "dataset")
    for name in ("list.json", "rows.csv"):
        (dataset / name).unlink()
    return dataset / "dataset.json", _use(dataset, folder, rng), (dataset,), None


def _list(bench: Bench, folder: Path, rng: random.Random) -> Told:
    dataset = shutil.copytree(bench.dataset, folder / "dataset")
    return dataset / "list.json", _use(dataset / "list.json", folder, rng), (dataset,), None


def _use(dataset: Path, folder: Path, rng: random.Random) -> Callable[[], int]:
    if rng.random() < 0.7:
        return veloxseg("check", dataset, "--workers", 1)
    return veloxseg("prepare", dataset, "-o", folder / "prepared", "--workers", 0, "--patch", 32, 32, 32)


def _record(bench: Bench, folder: Path, rng: random.Random) -> Told:
    """The record of a prediction that is done; the same is asked for again, or its masks are evaluated."""
    output = folder / "out"
    done = bench.once("done", lambda path: veloxseg(*predict(bench.quick_model, bench.scans, path / "mask.nii.gz"))())
    shutil.copytree(done, output)
    command = predict(bench.quick_model, bench.scans, output / "mask.nii.gz")
    if rng.random() < 0.5:
        command = ["evaluate", "-p", output, "-l", output, "-o", folder / "report"]
    return output / "mask.json", veloxseg(*command), (bench.scans, bench.quick_model), None


FILES: dict[str, Callable[[Bench, Path, random.Random], Told]] = {
    "model.json": _model,
    "plan.json": _plan,
    "cases.json": _cases,
    "settings.json": _settings,
    "dataset.json": _dataset,
    "list.json": _list,
    "record": _record,
}
