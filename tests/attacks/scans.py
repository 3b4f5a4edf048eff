"""Lies about scans: headers of every type, DICOM tags, and grids that no scanner makes."""

import random
import re
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np

import veloxseg.image as vio
from attacks.attack import Attack, veloxseg
from attacks.bench import Bench, predict
from support.dicom_lies import Lie, every_lie, outcome, write_lie
from support.scan_fuzz import FLOATS, WORDS, mutate

NUMBERS = [0, 1, -1, 2, 3, 7, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31)]
ABSURD = [1e-30, 1e-6, 0.0009, 101.0, 1000.0, 1e6, 1e30]  # millimetres
EXTREME = [0.0011, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 20.0, 50.0, 99.0]  # taken, if the whole has a sensible size
SIDES = [2, 3, 7, 16, 33, 64] * 3 + [1]


def header(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A field of the header has another value, or bytes of the file are damaged."""
    samples = {name: path for name, path in bench.samples.items() if name not in ("series", "seg", "rtstruct")}
    source = samples[name := rng.choice(sorted(samples))]
    for part in source.parent.glob(f"{source.stem.split('.')[0]}.*"):
        shutil.copy(part, folder)
    target = folder / name
    data = target.read_bytes()
    if rng.random() < 0.5:
        victim = rng.choice(sorted(folder.iterdir()))
        victim.write_bytes(mutate(victim.read_bytes(), rng))
        told = f"damaged {victim.name} of {name}"
    elif name.endswith((".nii", ".hdr")):
        told = f"{name}: {_lie_in_nifti(target, rng)}"
    else:
        told = f"{name}: {_lie_in_text(target, rng)}" if b"\n" in data[:200] else name
    found: list[vio.Volume] = []

    def wrong() -> str:
        return "" if found[0].warnings else _wrong_place(target, found[0])

    return Attack(told=told, act=lambda: found.append(vio.read(target)), inputs=(folder,), wrong=wrong)


def _lie_in_nifti(path: Path, rng: random.Random) -> str:
    """One number of one field."""
    data = bytearray(path.read_bytes())
    kind = (nib.Nifti2Header if struct.unpack("<i", data[:4])[0] == 540 else nib.Nifti1Header).template_dtype
    field = rng.choice([name for name in kind.names if kind[name].base.kind in "if"])
    base, at = kind[field].base, kind.fields[field][1]
    at += base.itemsize * rng.randrange(kind[field].itemsize // base.itemsize)
    value = rng.choice(NUMBERS if base.kind == "i" else [*FLOATS, *map(float, NUMBERS[:8])])
    with np.errstate(all="ignore"):
        data[at : at + base.itemsize] = np.array(value).astype(base).tobytes()
    path.write_bytes(data)
    return f"{field} at byte {at} is {value}"


def _lie_in_text(path: Path, rng: random.Random) -> str:
    """One value of one line becomes another, or the line is left out or said twice."""
    lines = path.read_bytes().split(b"\n")
    fields = [i for i, line in enumerate(lines[:16]) if re.match(rb"[ -~]+( =|:) ", line)]
    at = rng.choice(fields or [0])
    key = lines[at][:40].decode("ascii", "replace")
    how = rng.random()
    if how < 0.15:
        del lines[at]
    elif how < 0.25:
        lines.insert(at, lines[at])
    else:
        words = re.split(rb"( |,|\(|\))", lines[at])
        words[rng.randrange(len(words))] = rng.choice([*WORDS, b"2", b"-2", b"1e-9", b"mm", b"left-anterior-superior"])
        lines[at] = b"".join(words)
    path.write_bytes(b"\n".join(lines))
    return f"line {key!r} is {lines[at][:60]!r}"


def _wrong_place(path: Path, scan: vio.Volume) -> str:
    """An image of which nothing was said lies where another reader puts it, or that reader refuses it."""
    with np.errstate(all="ignore"):
        try:
            there = _affine_by_another_reader(path)
        except Exception:  # whatever the other reader does not like
            return ""
        ours = scan.geometry.affine
        scale = np.linalg.norm(there[:3, :3]) / np.linalg.norm(ours[:3, :3])
    if not np.isfinite(scale) or not scale:
        return ""
    unit = min((1.0, 1e3, 1e-3), key=lambda unit: abs(np.log(scale * unit)))  # metres and micrometres are converted
    if np.allclose(ours[:3], there[:3] * unit, rtol=1e-3, atol=1e-3 * float(np.abs(ours[:3]).max())):
        return ""
    return f"the image lies elsewhere, and nothing is said: {ours.tolist()}, by another reader {there.tolist()}"


def _affine_by_another_reader(path: Path) -> np.ndarray:
    if path.name.endswith((".nii", ".nii.gz", ".hdr")):
        return np.asarray(nib.load(path).affine, float)
    import SimpleITK as sitk

    image = sitk.ReadImage(str(path))
    affine = np.eye(4)
    affine[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) @ np.diag(image.GetSpacing())
    affine[:3, 3] = image.GetOrigin()
    return np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine


@cache
def _lies() -> list[Lie]:
    return list(every_lie(0))


@cache
def _truth(bench: Bench, modality: str) -> vio.Volume:
    folder = bench.folder / f"true-{modality}"
    return vio.read(folder if folder.exists() else write_lie(folder, None, modality, 0))


def dicom(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A tag has a plausible, wrong value, or bytes of one file of a series, a SEG or an RTSTRUCT are damaged."""
    if rng.random() < 0.4:
        return _damaged_dicom(bench, folder, rng)
    lie = rng.choice(_lies())
    series = write_lie(folder / "series", lie, lie.modality, rng.randrange(4))
    ends: list[str] = []

    def wrong() -> str:
        if ends[0] == "SILENT" and lie.can_be_known:
            return "another image, and nothing is said"
        return ends[0] if ends[0].startswith("not one line") else ""

    def act() -> int:
        ends.append(outcome(series, _truth(bench, lie.modality)))
        return 2 if ends[0] == "refused" else 0

    return Attack(told=str(lie), act=act, inputs=(folder,), wrong=wrong)


def _damaged_dicom(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    name = rng.choice(["series", "series", "seg", "rtstruct"])
    series = shutil.copytree(bench.samples["series"], folder / "series")
    act: Callable[[], object]
    if name == "series":
        victim = rng.choice(sorted(series.iterdir()))
        act = lambda: vio.read(series)  # noqa: E731
    else:
        victim = Path(shutil.copy(bench.samples[name], folder))
        act = lambda: vio.read_label(victim, reference=vio.read(series))  # noqa: E731
    victim.write_bytes(mutate(victim.read_bytes(), rng))
    return Attack(told=f"damaged {name}", act=act, inputs=(folder,))


def spacing(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """Sides of the image and of its voxels from far too small to far too large; a mask is on the scan's grid."""
    shape = tuple(rng.choice(SIDES) for _ in range(3))
    choices = EXTREME if rng.random() < 0.8 else ABSURD
    sides = [rng.choice(choices) for _ in range(3)] if rng.random() < 0.5 else [rng.choice(choices)] * 3
    affine = np.diag([*(side * rng.choice([1, 1, -1]) for side in sides), 1.0])
    forms = rng.random() < 0.8
    for name, mean in (("ct", -600), ("pet", 0)):
        values = np.random.default_rng(rng.randrange(99)).normal(mean, 200, shape).astype(np.float32)
        values = values if name == "ct" else np.abs(values) / 100
        image = nib.Nifti1Image(values, affine if forms else None)
        if not forms:
            image.header.set_zooms(np.array(sides, np.float32))
        with np.errstate(all="ignore"):
            nib.save(image, folder / f"{name}.nii.gz")
    output = folder / "out" / "mask.nii.gz"
    told = f"{shape} voxels of {sides} mm, {'with' if forms else 'without'} forms"
    command = predict(bench.quick_model, folder, output)
    if max(shape) > 40 or rng.random() < 0.3:
        command = [*command, "--max-ram", 2]

    def wrong() -> str:
        mask, scan = vio.read_label(output), vio.read(folder / "ct.nii.gz")
        return "" if mask.geometry.same_grid(scan.geometry) else "the mask is not on the scan's grid"

    scans = tuple(folder / f"{name}.nii.gz" for name in ("ct", "pet"))
    return Attack(told=told, act=veloxseg(*command), inputs=scans, output=folder / "out", wrong=wrong)
