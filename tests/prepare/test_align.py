"""A planted shift is noticed, measured and removed; an aligned case is left in peace."""

from dataclasses import replace
from typing import Any

import numpy as np

from veloxseg.io.volume import Geometry, Volume
from veloxseg.prepare.align import alignment
from veloxseg.prepare.register import register
from veloxseg.prepare.transform import label_to_network, to_network

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
    half = replace(
        pet, array=pet.array[:, :, :11], geometry=Geometry(shape=(26, 24, 11), affine=pet.geometry.affine)
    )
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
