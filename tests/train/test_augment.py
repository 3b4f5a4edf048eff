"""Augmentation: chance apart from change, labels moved and never mixed, rotations true in millimetres."""

import numpy as np
import pytest

from veloxseg.image.regions import cut
from veloxseg.train.augment import (
    PAPER,
    STRONG,
    Augmentation,
    Change,
    IntensityChange,
    apply,
    draw,
    read_size,
    transplant,
)
from veloxseg.train.patches import generator

PATCH = (32, 24, 10)
STILL = (IntensityChange(), IntensityChange())


def pair(shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(2, *shape)).astype(np.float32), random.integers(0, 5, shape).astype(np.uint8)


def test_paper_only_flips_z_half_of_the_time() -> None:
    changes = [draw(generator(0, 0, i), PAPER, 2) for i in range(400)]
    assert 160 < sum(c.flip[2] for c in changes) < 240
    assert all(c.flip[:2] == (False, False) and c.radians == 0 and c.intensity == STILL for c in changes)
    image, label = pair(PATCH)
    flipped = apply(image, label, Change((False, False, True), 0.0, STILL, 0), PATCH, 1.0)
    np.testing.assert_array_equal(flipped[0], image[..., ::-1])
    np.testing.assert_array_equal(flipped[1], label[..., ::-1])


def test_strong_stays_in_its_ranges() -> None:
    changes = [draw(generator(1, 2, i), STRONG, 2) for i in range(400)]
    angles = np.array([c.radians for c in changes])
    assert np.abs(angles).max() <= np.deg2rad(15)
    assert 80 < (angles != 0).sum() < 160
    assert {c.noise for change in changes for c in change.intensity} != {0.0}


def test_rotation_turns_a_line_by_the_angle_in_millimetres() -> None:
    """A bar along x must lie at the angle afterwards, also where y voxels are twice as long as x voxels."""
    aspect, angle = 2.0, np.deg2rad(12)
    change = Change((False, False, False), angle, (IntensityChange(),), 0)
    patch = (64, 64, 2)
    size = read_size(patch, change, aspect)
    image = np.zeros((1, *size), np.float32)
    middle = size[1] // 2
    image[0, :, middle - 1 : middle + 2] = 1
    label = (image[0] > 0).astype(np.uint8)
    turned, turned_label = apply(image, label, change, patch, aspect)
    for weight in (turned[0, ..., 0], turned_label[..., 0].astype(float)):
        x = np.arange(8, 56)
        y = np.array([(weight[i] * np.arange(64)).sum() / weight[i].sum() for i in x]) * aspect
        assert abs(np.rad2deg(np.arctan(np.polyfit(x, y, 1)[0])) + 12) < 0.7
    assert set(np.unique(turned_label)) <= {0, 1}


def test_rotation_reads_real_voxels_and_keeps_values() -> None:
    change = Change((False, False, False), np.deg2rad(15), STILL, 0)
    size = read_size(PATCH, change, 1.0)
    assert size[0] > PATCH[0]
    assert size[2] == PATCH[2]
    image, label = pair(size)
    constant = np.full_like(image, 3.0)
    turned, labels = apply(constant, np.full_like(label, 255), change, PATCH, 1.0)
    np.testing.assert_allclose(turned, 3.0, rtol=1e-5)
    assert (labels == 255).all()  # an ignore label stays what it is
    assert turned.shape == (2, *PATCH)


def test_zoom_makes_a_ball_smaller_by_the_factor_and_keeps_its_place() -> None:
    patch, zoom = (48, 48, 32), (1.25, 0.8)
    change = Change((False, False, False), 0.0, (IntensityChange(),), 0, zoom)
    size = read_size(patch, change, 1.0)
    assert size[0] >= 60
    assert size[2] >= 26
    grids = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in size), indexing="ij")
    label = (sum(g**2 for g in grids) < 10**2).astype(np.uint8)
    moved, moved_label = apply(label[None].astype(np.float32), label, change, patch, 1.0)
    assert moved_label.shape == patch
    sides = [np.ptp(np.flatnonzero(moved_label.any(axis=axes))) + 1 for axes in ((1, 2), (0, 2), (0, 1))]
    assert sides == pytest.approx([16, 16, 25], abs=1)
    assert np.mean((moved[0] > 0.5) == moved_label) > 0.99
    centre = np.argwhere(moved_label).mean(axis=0)
    np.testing.assert_allclose(centre, (np.array(patch) - 1) / 2, atol=0.5)


def test_intensity_changes_each_modality_alone() -> None:
    image, label = pair(PATCH)
    change = Change((False,) * 3, 0.0, (IntensityChange(brightness=0.5, contrast=2.0), IntensityChange()), 0)
    result, labels = apply(image.copy(), label, change, PATCH, 1.0)
    np.testing.assert_allclose(result[0], 2 * image[0] + 0.5, rtol=1e-5)
    np.testing.assert_array_equal(result[1], image[1])
    np.testing.assert_array_equal(labels, label)
    gamma = Change((False,) * 3, 0.0, (IntensityChange(gamma=1.3), IntensityChange(noise=0.1)), 5)
    result, _ = apply(image.copy(), label, gamma, PATCH, 1.0)
    assert np.isclose(result[0].min(), image[0].min(), atol=1e-5)
    assert np.isclose(result[0].max(), image[0].max(), atol=1e-5)
    assert 0.08 < (result[1] - image[1]).std() < 0.12


def test_changing_one_probability_leaves_the_other_draws_alone() -> None:
    one = draw(generator(3, 0, 0), Augmentation(rotation=0.0), 2)
    other = draw(generator(3, 0, 0), Augmentation(rotation=1.0), 2)
    assert one.flip == other.flip
    assert one.noise_seed == other.noise_seed
    assert other.radians != 0


def test_cut_pads_what_is_outside() -> None:
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.float16)
    np.testing.assert_array_equal(cut(array, (1, 1, 1), (2, 2, 2), np.float32), array[:, 1:3, 1:3, 1:3])
    padded = cut(array, (-2, -1, 0), (7, 6, 5), np.float32)
    np.testing.assert_array_equal(padded[:, 2:5, 1:5, :], array)
    assert padded.sum() == array.sum(dtype=np.float64)


def test_a_transplant_moves_lesions_with_their_margin_and_nothing_else() -> None:
    image, label = np.zeros((2, 12, 12, 12), np.float32), np.zeros((12, 12, 12), np.uint8)
    label[1, 1, 1] = 3
    donor, lesions = image + 7, np.zeros_like(label)
    lesions[6, 6, 6], lesions[10, 10, 10] = 2, 9
    mixed, mixed_label = transplant(image, label, donor, lesions, margin=1, ignore=9)
    assert (mixed == 7).sum() == 2 * 3**3  # both modalities; what is to be ignored is no lesion
    assert (mixed[:, 5:8, 5:8, 5:8] == 7).all()
    assert mixed_label[6, 6, 6] == 2
    assert mixed_label[1, 1, 1] == 3
    assert not image.any()
    covered, covered_label = transplant(image, label, donor, np.full_like(label, 2), margin=0)
    assert (covered == 7).all()
    assert (covered_label == 2).all()
