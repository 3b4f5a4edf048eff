"""A planted shift is noticed, measured and removed; an aligned case is left in peace."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veloxseg.image import read
from veloxseg.image.align import alignment, alignment_warnings
from veloxseg.image.register import _implausible, register
from veloxseg.image.volume import Geometry, Volume
from veloxseg.prepare.network_input import label_to_network, to_network

SHAPE = (48, 44, 40)


def petct(tools: Any, shift: tuple[float, float, float]) -> tuple[Volume, Volume]:
    ct, pet = tools.centred(SHAPE, (2, 2, 2)), tools.centred((26, 24, 22), (4, 4, 4))
    return (
        tools.volume(tools.phantom("ct", SHAPE, ct), ct),
        tools.volume(tools.phantom("pet", (26, 24, 22), pet, shift=shift), pet),
    )


def test_shift_is_found(tools: Any) -> None:
    aligned = alignment(*petct(tools, (0, 0, 0)), "ct", "pet")
    assert aligned is not None
    assert not aligned.suspicious
    assert np.linalg.norm(aligned.shift_mm) < 2
    shifted = alignment(*petct(tools, (9, 0, -6)), "ct", "pet")
    assert shifted is not None
    assert shifted.suspicious
    assert np.abs(np.subtract(shifted.shift_mm, (9, 0, -6))).max() < 2.5


def test_field_of_view_that_is_too_small_is_measured(tools: Any) -> None:
    ct, pet = petct(tools, (0, 0, 0))
    half = replace(pet, array=pet.array[:, :, :11], geometry=Geometry(shape=(26, 24, 11), affine=pet.geometry.affine))
    score = alignment(ct, half, "ct", "pet")
    assert score is not None
    assert 0.3 < score.coverage < 0.7


def test_plan_that_registers_puts_the_hot_spot_onto_the_label(tools: Any) -> None:
    ct, pet = petct(tools, (8, -5, 4))
    label = tools.volume(tools.lesion(SHAPE, ct.geometry.affine), ct.geometry.affine)
    inside = {}
    for how in ("none", "rigid"):
        plan = replace(tools.plan({"ct": "ct", "pet": "pet"}, (2, 2, 2)), register=how)
        image, placement = to_network({"ct": ct, "pet": pet}, plan)
        inside[how] = image[1][label_to_network(label, placement) == 1].mean()
    assert inside["rigid"] > 1.5 * inside["none"]


def test_rigid_registration_moves_the_scan_back(tools: Any) -> None:
    ct, pet = petct(tools, (8, -5, 4))
    moved = register(ct, pet, "rigid")
    middle = np.array([12.5, 11.5, 10.5, 1])
    travelled = (moved.geometry.affine - pet.geometry.affine) @ middle
    assert np.abs(travelled[:3] - (-8, 5, -4)).max() < 2  # millimetres, half a PET voxel
    score = alignment(ct, moved, "ct", "pet")
    assert score is not None
    assert not score.suspicious


def by_shift(pet: Volume, millimetres: tuple[float, float, float]) -> Volume:
    affine = pet.geometry.affine.copy()
    affine[:3, 3] += millimetres
    return replace(pet, geometry=Geometry(shape=pet.geometry.shape, affine=affine))


def warnings_of(ct: Volume, pet: Volume) -> list[str]:
    return alignment_warnings({"ct": ct, "pet": pet}, "ct", {"ct": "ct", "pet": "pet"})[1]


def test_gross_errors_raise_a_warning(tools: Any) -> None:
    ct, pet = petct(tools, (0, 0, 0))
    assert warnings_of(ct, pet) == []
    for shift in ((40, 0, 0), (0, -40, 0)):
        assert any("does not fit onto ct where it lies" in text for text in warnings_of(ct, by_shift(pet, shift)))
    noise = np.random.default_rng(0).random(pet.array.shape, np.float32)
    assert any("too little in common" in text for text in warnings_of(ct, replace(pet, array=noise)))


def test_how_the_scans_are_stored_does_not_matter(tools: Any) -> None:
    ct, pet = petct(tools, (9, 0, -6))
    affine = ct.geometry.affine.copy()
    affine[:3, 3] += affine[:3, 0] * (SHAPE[0] - 1)
    affine[:3, 0] *= -1
    flipped = Volume(array=ct.array[::-1], geometry=Geometry(shape=SHAPE, affine=affine))
    assert alignment(flipped, pet, "ct", "pet") == alignment(ct, pet, "ct", "pet")


class OneAtATime(Mapping[str, Volume]):
    """Scans that are read when they are asked for, as under --max-ram."""

    def __init__(self, volumes: dict[str, Volume]) -> None:
        self.volumes, self.asked = volumes, list[str]()

    def __getitem__(self, name: str) -> Volume:
        self.asked.append(name)
        return self.volumes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.volumes)

    def __len__(self) -> int:
        return len(self.volumes)


def test_each_scan_is_read_once(tools: Any) -> None:
    ct, pet = petct(tools, (9, 0, -6))
    scans = OneAtATime({"pet": pet, "ct": ct})
    assert len(alignment_warnings(scans, "ct", {"ct": "ct", "pet": "pet"})[1]) == 1
    assert scans.asked == ["ct", "pet"]


def test_implausible_motion_is_refused(tools: Any) -> None:
    grid = petct(tools, (0, 0, 0))[0].geometry
    assert _implausible(np.eye(4), grid) == ""
    turned, scaled, shifted = np.eye(4), np.diag([1.0, 1.2, 1.0, 1.0]), np.eye(4)
    turned[:2, :2] = [[0.9, -np.sqrt(0.19)], [np.sqrt(0.19), 0.9]]
    shifted[0, 3] = 61
    for motion, words in ((turned, "turns it by 26°"), (scaled, "scales it by 20%"), (shifted, "shifts it by 61 mm")):
        assert words in _implausible(motion, grid)


def test_a_scan_elsewhere_is_not_registered_but_told(tools: Any) -> None:
    ct, pet = petct(tools, (0, 0, 0))
    far = register(ct, by_shift(pet, (1000, 0, 0)), "rigid", ("ct", "pet"))
    assert far.geometry.origin[0] == pet.geometry.origin[0] + 1000
    assert any("not registered" in text for text in far.warnings)


@pytest.mark.shared
def test_an_aligned_pet_stays_and_runs_agree(shared: Path) -> None:
    """Affine registration of this crop runs away by decimetres, each time elsewhere; such a motion is refused."""
    patient = shared / "data" / "sts_petct" / "STS_002"
    ct, pet = read(patient / "CT_image.nii.gz"), read(patient / "PET_image.nii.gz")
    results = [register(ct, pet, "affine", ("ct", "pet")) for _ in range(2)]
    for result in results:
        assert result.geometry.distance(pet.geometry) < 20
        assert any("not registered" in text for text in result.warnings)
    assert np.array_equal(results[0].geometry.affine, results[1].geometry.affine)


@pytest.mark.shared
def test_registration_is_reproducible(shared: Path) -> None:
    patient = shared / "data" / "sts_petct" / "STS_019"  # the PET of this patient lies 8 mm off
    ct, pet = read(patient / "CT_image.nii.gz"), read(patient / "PET_image.nii.gz")
    first, second = (register(ct, pet, "affine", ("ct", "pet")) for _ in range(2))
    assert np.array_equal(first.geometry.affine, second.geometry.affine)
    assert 3 < first.geometry.distance(pet.geometry) < 40


@pytest.mark.shared
@pytest.mark.parametrize("names", [("STS_002", "STS_005"), ("STS_026", "STS_031"), ("STS_038", "STS_047")])
def test_real_pairs_and_wrong_ones(shared: Path, names: tuple[str, str]) -> None:
    """Patients that the thresholds were not chosen on."""

    def scans(name: str) -> tuple[Volume, Volume]:
        folder = shared / "data" / "sts_petct" / name
        return read(folder / "CT_image.nii.gz"), read(folder / "PET_image.nii.gz")

    (ct, pet), (_, other) = map(scans, names)
    assert warnings_of(ct, pet) == []
    for axis in range(2):
        for distance in (60.0, -60.0):
            x, y, z = (distance if axis == a else 0.0 for a in range(3))
            assert any("look at the case" in text for text in warnings_of(ct, by_shift(pet, (x, y, z))))
    right = pet.geometry.orientation.axes[0]
    assert any("left and right" in text for text in warnings_of(ct, replace(pet, array=np.flip(pet.array, right))))
    centres = [np.mean(volume.geometry.bounds(), axis=0) for volume in (pet, other)]
    x, y, z = centres[0] - centres[1]
    assert any("look at the case" in text for text in warnings_of(ct, by_shift(other, (x, y, z))))


@pytest.mark.shared
def test_sequences_of_one_brain_belong_together(shared: Path) -> None:
    folder = shared / "data" / "lgg_mri" / "imagesTr"
    for first in sorted(folder.glob("*_0000.nii.gz"))[:4]:
        paths = sorted(folder.glob(first.name.replace("_0000", "_000?")))
        volumes = {f"mr{number}": read(path) for number, path in enumerate(paths)}
        assert alignment_warnings(volumes, "mr0", dict.fromkeys(volumes, "mr"))[1] == []
        mirrored = {**volumes, "mr1": replace(volumes["mr1"], array=volumes["mr1"].array[::-1])}
        texts = alignment_warnings(mirrored, "mr0", dict.fromkeys(volumes, "mr"))[1]
        assert any("mr1 fits onto mr0 better when left and right" in text for text in texts)
