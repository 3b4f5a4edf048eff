"""Scores that come in slabs give the labels of interpolating everything at once, whatever way the axes run."""

import numpy as np
import pytest
from nibabel.orientations import axcodes2ornt, inv_ornt_aff, io_orientation, ornt_transform
from scipy.ndimage import gaussian_filter

from veloxseg.image.resample import axis_maps, resample_image
from veloxseg.image.volume import Volume
from veloxseg.predict.restore import restore, shared_columns
from veloxseg.predict.sliding import Slab, strips_within
from veloxseg.prepare.network_input import Placement
from veloxseg.runtimes.decoding import Decoding

NETWORK = (23, 17, 19)


def make_placement(code: str, scale: tuple[float, float, float], size: tuple[int, int, int] = NETWORK) -> Placement:
    """A network grid in a scan that is a little larger, with the axes of `code` and `scale` times the spacing."""
    network = np.diag([3.0, 2.0, 1.5, 1.0])
    network[:3, 3] = [-10, 5, 7]
    shape = [int(np.ceil(n / s)) + 3 for n, s in zip(size, scale, strict=True)]
    affine = np.diag([*(np.array([3.0, 2.0, 1.5]) * scale), 1.0])
    affine[:3, 3] = [-13, 3, 7] if scale == (1, 1, 1) else [-13, 4, 6]
    turn = ornt_transform(io_orientation(affine), axcodes2ornt(code))
    turned = [0, 0, 0]
    for axis in range(3):
        turned[int(turn[axis, 0])] = shape[axis]
    affine = affine @ inv_ornt_aff(turn, shape)
    return Placement(
        reference_shape=tuple(turned),
        reference_affine=tuple(map(tuple, affine)),
        network_shape=size,
        network_affine=tuple(map(tuple, network)),
    )


def make_scores(channels: int, labels: int, size: tuple[int, int, int] = NETWORK) -> np.ndarray:
    """Smooth, and mostly background."""
    random = np.random.default_rng(0)
    scores = np.stack([gaussian_filter(random.normal(size=size), 2) for _ in range(channels)])
    scores = scores.astype(np.float32) / scores.std()
    scores[0] += 1 if labels > 2 else -1
    return scores


@pytest.mark.parametrize("code", ["RAS", "LPS", "SAR", "PIR"])
@pytest.mark.parametrize("scale", [(1, 1, 1), (2, 1.5, 0.7), (0.5, 0.6, 2.2)])
@pytest.mark.parametrize("labels", [2, 4])
def test_slabs_give_what_the_whole_volume_gives(code, scale, labels, make_plan):
    placement, decoding = make_placement(code, scale), Decoding(make_plan(labels))
    scores = make_scores(decoding.channels, labels)
    slabs = [Slab(a, scores[:, a:b]) for a, b in ((0, 5), (5, 6), (6, 15), (15, 23))]
    found = restore(slabs, placement, decoding)
    with_probabilities = restore(slabs, placement, decoding, probabilities=True)

    whole = np.stack(
        [resample_image(Volume(array=s, geometry=placement.network), placement.reference, "linear", 0) for s in scores]
    )
    expected = decoding.labels(whole)
    for axis, along in enumerate(axis_maps(placement.network, placement.reference)):
        size = NETWORK[along.source_axis]
        beyond = np.abs(along.coordinates - (size - 1) / 2) > size / 2 + 1e-3
        expected[(slice(None),) * axis + (beyond,)] = 0
    assert expected.any()
    assert (found.labels == expected).all()
    assert (with_probabilities.labels == expected).all()
    assert found.probabilities == {}
    for probability in with_probabilities.probabilities.values():
        assert probability.shape == placement.reference_shape
        assert probability.max() > 127


@pytest.mark.parametrize("code", ["RAS", "LPS", "SAR", "PIR"])
@pytest.mark.parametrize("scale", [(1, 1, 1), (2, 1.5, 0.7), (0.5, 0.6, 2.2)])
@pytest.mark.parametrize("labels", [2, 4])
def test_strips_of_any_width_give_what_one_strip_gives(code, scale, labels, make_plan):
    """Labels and probabilities, voxel for voxel; a strip knows nothing of the scores beside it."""
    plan = make_plan(labels, spacing=(3.0, 2.0, 1.5))
    size = (23, 37, 19)
    placement, decoding = make_placement(code, scale, size), Decoding(plan)
    scores, rows = make_scores(decoding.channels, labels, size), ((0, 5), (5, 6), (6, 15), (15, 23))
    whole = [restore([Slab(0, scores)], placement, decoding, probabilities=asked) for asked in (False, True)]
    shared = shared_columns(placement.reference, plan)
    counts = set()
    for width in range(2 * shared, size[1] + 1):
        strips = strips_within(4 * decoding.channels * 23 * 19 * width, size, size, decoding.channels, shared)
        counts.add(len(strips))
        slabs = [Slab(a, scores[:, a:b, strip], strip.start) for strip in strips for a, b in rows]
        for asked, expected in zip((False, True), whole, strict=True):
            found = restore(slabs, placement, decoding, probabilities=asked)
            assert (found.labels == expected.labels).all()
            for name, probability in expected.probabilities.items():
                assert (found.probabilities[name] == probability).all()
    assert max(counts) > 1
