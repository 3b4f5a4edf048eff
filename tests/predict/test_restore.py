"""Scores that come in slabs give the labels of interpolating everything at once, whatever way the axes run."""

import numpy as np
import pytest
from nibabel.orientations import axcodes2ornt, inv_ornt_aff, io_orientation, ornt_transform
from scipy.ndimage import gaussian_filter

from veloxseg.image.resample import axis_maps, resample_image
from veloxseg.image.volume import Volume
from veloxseg.predict.restore import restore
from veloxseg.predict.sliding import Slab
from veloxseg.prepare.network_input import Placement
from veloxseg.runtimes.decoding import Decoding

NETWORK = (23, 17, 19)


def make_placement(code: str, scale: tuple[float, float, float]) -> Placement:
    """A network grid in a scan that is a little larger, with the axes of `code` and `scale` times the spacing."""
    network = np.diag([3.0, 2.0, 1.5, 1.0])
    network[:3, 3] = [-10, 5, 7]
    shape = [int(np.ceil(n / s)) + 3 for n, s in zip(NETWORK, scale, strict=True)]
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
        network_shape=NETWORK,
        network_affine=tuple(map(tuple, network)),
    )


@pytest.mark.parametrize("code", ["RAS", "LPS", "SAR", "PIR"])
@pytest.mark.parametrize("scale", [(1, 1, 1), (2, 1.5, 0.7), (0.5, 0.6, 2.2)])
@pytest.mark.parametrize("labels", [2, 4])
def test_slabs_give_what_the_whole_volume_gives(code, scale, labels, make_plan):
    placement, decoding = make_placement(code, scale), Decoding(make_plan(labels))
    random = np.random.default_rng(0)
    scores = np.stack([gaussian_filter(random.normal(size=NETWORK), 2) for _ in range(decoding.channels)])
    scores = scores.astype(np.float32) / scores.std()
    scores[0] += 1 if labels > 2 else -1
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
