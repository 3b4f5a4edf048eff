"""Synthetic brain MR: nested labels, each told by another sequence."""

import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from veloxseg.phantom.brain import SEQUENCES, Case, draw, render
from veloxseg.phantom.scans import Scans

SIZE = (56, 68, 52)


@pytest.fixture(scope="module")
def patients() -> list[tuple[Case, Scans]]:
    return [(case, render(case, SIZE)) for case in (draw(0, index) for index in range(8))]


def test_labels_are_nested(patients: list[tuple[Case, Scans]]) -> None:
    for case, scans in patients:
        label = scans.label.array
        assert set(np.unique(label)) <= {0, 1, 2, 4}
        assert (label == 4).any() == case.enhancing
        core, tumour = label == 1, np.isin(label, (1, 4))
        if case.enhancing and core.any():  # the core is wrapped in the rim, but for where the rim is very thin
            shell = binary_dilation(core) & ~core
            assert np.mean(label[shell] == 4) > 0.5
        assert np.count_nonzero(label) > np.count_nonzero(tumour) > 0


def test_each_part_has_its_sequence(patients: list[tuple[Case, Scans]]) -> None:
    for case, scans in patients:
        label = scans.label.array
        images = {name: volume.array.astype(float) for name, volume in scans.images.items()}
        healthy = (label == 0) & (images["t1"] > 0)
        brain = {name: np.median(image[healthy]) for name, image in images.items()}
        assert np.median(images["flair"][label == 2]) > 1.3 * brain["flair"]
        assert np.median(images["t2"][label == 2]) > brain["t2"]
        if case.enhancing:
            rim = label == 4
            assert np.median(images["t1ce"][rim]) > 1.15 * brain["t1ce"]
            assert np.median(images["t1"][rim]) < brain["t1"]
        if (label == 1).sum() > 20:
            assert np.median(images["t1"][label == 1]) < 0.85 * brain["t1"]


def test_all_on_one_grid_and_zero_outside(patients: list[tuple[Case, Scans]]) -> None:
    for _, scans in patients:
        assert tuple(scans.images) == SEQUENCES
        zero = np.all([volume.array == 0 for volume in scans.images.values()], axis=0)
        assert 0.2 < zero.mean() < 0.9
        assert not (zero & (scans.label.array > 0)).any()
        assert all(volume.geometry.same_grid(scans.label.geometry) for volume in scans.images.values())


def test_the_same_seed_gives_the_same_voxels() -> None:
    first, second = (render(draw(5, 1), (32, 32, 32)).images["flair"].array for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, render(draw(5, 2), (32, 32, 32)).images["flair"].array)
