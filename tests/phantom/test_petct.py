"""Synthetic PET/CT: the label is where the lesions are, and neither scan alone tells them."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.ndimage import affine_transform, binary_dilation

from veloxseg.phantom.lesions import STATIONS
from veloxseg.phantom.petct import FIELD_OF_VIEW, Case, draw, render
from veloxseg.phantom.scans import Scans

SIZE = (64, 44, 128)


@pytest.fixture(scope="module")
def patients() -> list[tuple[Case, Scans]]:
    return [(case, render(case, SIZE)) for case in (draw(3, index) for index in range(12))]


def pet_on_ct(scans: Scans) -> npt.NDArray[np.float32]:
    ct, pet = scans.images["ct"].geometry, scans.images["pet"]
    step = np.array(ct.spacing) / np.array(pet.geometry.spacing)
    offset = (np.array(ct.origin) - np.array(pet.geometry.origin)) / np.array(pet.geometry.spacing)
    return np.asarray(affine_transform(pet.array, step, offset, ct.shape, order=1, mode="nearest"))


def test_the_same_numbers_give_the_same_voxels() -> None:
    first, second = render(draw(1, 2), (32, 32, 48)), render(draw(1, 2), (32, 32, 48))
    assert draw(1, 2) == draw(1, 2)
    for name in ("ct", "pet"):
        assert np.array_equal(first.images[name].array, second.images[name].array)
    assert draw(1, 2) != draw(1, 3)
    assert draw(1, 2) != draw(2, 2)


def test_label_is_empty_only_without_lesions(patients: list[tuple[Case, Scans]]) -> None:
    for case, scans in patients:
        assert scans.label.array.any() == bool(case.lesions)
        sites = {2 if lesion.site == "node" else 1 for lesion in case.lesions}
        assert set(np.unique(scans.label.array)) - {0} <= sites


def test_share_without_lesions_and_spread_of_sizes() -> None:
    cases = [draw(0, index) for index in range(400)]
    assert 0.09 < np.mean([not case.lesions for case in cases]) < 0.21
    radii = [np.prod(lesion.radii) ** (1 / 3) for case in cases for lesion in case.lesions]
    assert np.percentile(radii, 90) > 2 * np.percentile(radii, 10)
    assert {lesion.site for case in cases for lesion in case.lesions} == {"lung", "liver", "bone", "node"}


def test_lesions_are_hotter_than_their_neighbourhood(patients: list[tuple[Case, Scans]]) -> None:
    hotter = []
    for _, scans in patients:
        lesion = scans.label.array > 0
        if lesion.any():
            pet = pet_on_ct(scans)
            around = binary_dilation(lesion, iterations=4) & ~binary_dilation(lesion, iterations=2)
            hotter.append(pet[lesion].mean() / pet[around].mean())
    assert min(hotter) > 1.1
    assert np.median(hotter) > 2


def test_pet_alone_is_misled_by_organs(patients: list[tuple[Case, Scans]]) -> None:
    """In every patient some healthy tissue takes up more than the median lesion voxel."""
    uptake = [(pet_on_ct(scans), scans.label.array > 0) for _, scans in patients]
    typical = float(np.median(np.concatenate([pet[lesion] for pet, lesion in uptake])))
    for pet, lesion in uptake:
        far = ~binary_dilation(lesion, iterations=3)
        assert np.count_nonzero(pet[far] > typical) > 50
    best = max(_dice(uptake, threshold) for threshold in np.arange(1, 12, 0.5))
    assert best < 0.5  # no threshold on PET finds the lesions


def _dice(uptake: list[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]], threshold: float) -> float:
    both = sum(np.count_nonzero((pet > threshold) & lesion) for pet, lesion in uptake)
    either = sum(np.count_nonzero(pet > threshold) + np.count_nonzero(lesion) for pet, lesion in uptake)
    return 2 * both / either


def test_both_scans_tell_more_than_one(patients: list[tuple[Case, Scans]]) -> None:
    """A voxel's PET and CT values together predict the label of other patients better than each alone."""
    voxels = [
        (
            np.digitize(pet_on_ct(scans), np.arange(0.5, 14, 0.75)).ravel(),
            np.digitize(scans.images["ct"].array, [-900, -600, -300, -130, -60, -20, *range(0, 301, 20)]).ravel(),
            scans.label.array.ravel() > 0,
        )
        for _, scans in patients
    ]
    learn, test = ([np.concatenate(part) for part in zip(*half, strict=True)] for half in (voxels[:7], voxels[7:]))
    pet = _best_dice(learn[0], test[0], learn[2], test[2])
    ct = _best_dice(learn[1], test[1], learn[2], test[2])
    both = _best_dice(64 * learn[0] + learn[1], 64 * test[0] + test[1], learn[2], test[2])
    assert both > 1.1 * max(pet, ct)


def _best_dice(
    bins: npt.NDArray[np.intp],
    test_bins: npt.NDArray[np.intp],
    label: npt.NDArray[np.bool_],
    truth: npt.NDArray[np.bool_],
) -> float:
    share = np.bincount(bins[label], minlength=64 * 64) / np.maximum(np.bincount(bins, minlength=64 * 64), 1)
    masks = [share[test_bins] > threshold for threshold in np.arange(0.02, 0.6, 0.02)]
    return max(2 * np.count_nonzero(mask & truth) / (mask.sum() + truth.sum()) for mask in masks)


def test_grids_differ_and_both_hold_the_body(patients: list[tuple[Case, Scans]]) -> None:
    for case, scans in patients:
        ct, pet = scans.images["ct"].geometry, scans.images["pet"].geometry
        assert np.allclose(np.array(pet.spacing) / np.array(ct.spacing), case.pet_step)
        assert not np.allclose(ct.origin, pet.origin)
        assert np.allclose(np.array(ct.spacing) * ct.shape, FIELD_OF_VIEW)
        assert scans.label.geometry.same_grid(ct)


def test_harmless_nodules_are_seen_on_ct_only() -> None:
    nodules = [lesion for index in range(40) for lesion in draw(0, index).look_alikes]
    assert nodules
    assert all(nodule.suv == 0 and nodule.hounsfield > 150 for nodule in nodules)


def test_brown_fat_is_as_hot_as_tumour_and_fat_on_ct(patients: list[tuple[Case, Scans]]) -> None:
    """In the places of lymph nodes, so that PET alone cannot tell it from them."""
    case, scans = next((case, scans) for case, scans in patients if case.brown_fat)
    cold = render(replace(case, brown_fat=()), SIZE)
    assert np.array_equal(scans.images["ct"].array, cold.images["ct"].array)
    assert np.array_equal(scans.label.array, cold.label.array)
    hot = pet_on_ct(scans) - pet_on_ct(cold) > 2
    assert hot.any()
    assert np.median(scans.images["ct"].array[hot]) < -50
    stations = {depot.centre for index in range(40) for depot in draw(0, index).brown_fat}
    assert all(min(np.linalg.norm(np.subtract(centre, s)) for s in STATIONS) < 18 for centre in stations)


def test_hounsfield_units_are_those_of_a_body(patients: list[tuple[Case, Scans]]) -> None:
    for _, scans in patients:
        ct = scans.images["ct"].array
        assert ct.dtype == np.int16
        assert np.median(ct) < -900  # mostly air around
        body = ct[(ct > -200) & (ct < 300)]
        assert 0 < np.median(body) < 80
        assert 0.02 < np.mean((ct > -900) & (ct < -650)) < 0.2  # lungs
        assert np.mean(ct > 400) > 0.003  # bones
