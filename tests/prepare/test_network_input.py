"""The way to the network and back: every voxel returns to its place, on any grid."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

from support.cases import from_network
from veloxseg.errors import DatasetError
from veloxseg.image.volume import Geometry
from veloxseg.prepare.network_input import Placement, label_to_network, to_network

SHAPE, SPACING = (33, 26, 17), (1.7, 2.1, 4.0)


def oriented(permutation: tuple[int, ...], signs: tuple[int, ...], oblique: bool) -> Geometry:
    """A grid around the origin whose axes are permuted and flipped, and tilted by 20 degrees if `oblique`."""
    linear = np.zeros((3, 3))
    for axis, (world, sign) in enumerate(zip(permutation, signs, strict=True)):
        linear[world, axis] = sign * SPACING[axis]
    if oblique:
        a = np.deg2rad(20)
        tilt = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
        tilt = tilt @ np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
        linear = tilt @ linear
    affine = np.eye(4)
    affine[:3, :3] = linear
    affine[:3, 3] = -linear @ (np.array(SHAPE) - 1) / 2
    return Geometry(shape=SHAPE, affine=affine)


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return float(2 * (a & b).sum() / (a.sum() + b.sum()))


ORIENTATIONS = list(itertools.product(itertools.permutations(range(3)), itertools.product((1, -1), repeat=3)))


@pytest.mark.parametrize("oblique", [False, True])
def test_labels_return_from_48_orientations(oblique: bool, tools: Any) -> None:
    for permutation, signs in ORIENTATIONS:
        grid = oriented(permutation, signs, oblique)
        label = tools.lesion(SHAPE, grid.affine)
        image = tools.volume(tools.phantom("ct", SHAPE, grid.affine), grid.affine)
        # own spacing along the RAS axes: nothing to interpolate, so the way back is exact
        own = [0.0] * 3
        for axis, world in enumerate(permutation):
            own[world] = SPACING[axis]
        array, placement = to_network({"ct": image}, tools.plan({"ct": "ct"}, tuple(own)))
        returned = from_network(label_to_network(tools.volume(label, grid.affine), placement), placement)
        np.testing.assert_array_equal(returned, label)
        assert np.allclose(placement.reference.affine, grid.affine, atol=1e-9)
        # network axes are closest to RAS
        assert (np.abs(placement.network.direction).argmax(axis=0) == [0, 1, 2]).all()
        assert (np.diag(placement.network.direction) > 0).all()
        assert array.shape[1:] == placement.network_shape
        # the finer network grid of a real plan
        _, placement = to_network({"ct": image}, tools.plan({"ct": "ct"}, (0.9, 0.9, 0.9)))
        returned = from_network(label_to_network(tools.volume(label, grid.affine), placement), placement)
        assert dice(returned == 1, label == 1) >= 0.999


@pytest.mark.parametrize("oblique", [False, True])
def test_network_voxels_show_their_own_place_in_space(oblique: bool, tools: Any) -> None:
    """A scan that holds its own x, y or z coordinate must hold it on the network grid, for every modality's grid."""
    for (permutation, signs), world in zip(ORIENTATIONS[::5], itertools.cycle(range(3)), strict=False):
        reference = oriented(permutation, signs, oblique)
        other = tools.centred((30, 30, 30), (3.0, 3.0, 3.0))
        volumes = {}
        for name, grid in (("t1", reference), ("t2", Geometry(shape=(30, 30, 30), affine=other))):
            index = np.indices(grid.shape).reshape(3, -1)
            points = grid.affine[:3, :3] @ index + grid.affine[:3, 3:]
            volumes[name] = tools.volume(points[world].reshape(grid.shape).astype(np.float32) + 1000, grid.affine)
        array, placement = to_network(volumes, tools.plan({"t1": "mr", "t2": "mr"}, (2.5, 2.5, 2.5)))
        index = np.indices(placement.network_shape).reshape(3, -1)
        affine = placement.network.affine
        expected = (affine[:3, :3] @ index + affine[:3, 3:])[world].reshape(placement.network_shape) + 1000
        inner = (slice(3, -3),) * 3
        for channel in array:
            assert np.abs(channel[inner] - expected[inner]).max() < 0.05  # millimetres


def test_air_is_cropped_and_what_is_outside_returns_as_background(tools: Any) -> None:
    affine = tools.centred((90, 90, 30), (2, 2, 3))
    image = tools.volume(tools.phantom("ct", (90, 90, 30), affine), affine)
    array, placement = to_network({"ct": image}, tools.plan({"ct": "ct"}, (2, 2, 3)))
    assert placement.network_shape[0] < 45
    assert placement.network_shape[1] < 40
    returned = from_network(np.ones(placement.network_shape, np.uint8), placement)
    assert returned.shape == (90, 90, 30)
    assert returned.sum() == np.prod(placement.network_shape)
    body = np.asarray(image.array > -500)
    assert returned[body].all()  # the crop holds the whole body
    assert array.dtype == np.float32


def test_normalisation_by_the_body(tools: Any) -> None:
    affine = tools.centred((60, 50, 30), (2, 2, 3))
    volumes = {kind: tools.volume(tools.phantom(kind, (60, 50, 30), affine), affine) for kind in ("ct", "pet")}
    array, _ = to_network(volumes, tools.plan({"ct": "ct", "pet": "pet"}, (2, 2, 3), "zscore_body"))
    body = array[0] > array[0].min() + 0.5 * (array[0].max() - array[0].min())
    assert abs(array[1][body].mean()) < 0.1
    assert abs(array[1][body].std() - 1) < 0.1


def test_logarithm_of_a_pet_does_not_depend_on_its_unit_nor_on_how_hot_a_tumour_is(tools: Any) -> None:
    affine = tools.centred((60, 50, 30), (2, 2, 3))
    ct, pet = (tools.phantom(kind, (60, 50, 30), affine) for kind in ("ct", "pet"))
    plan = tools.plan({"ct": "ct", "pet": "pet"}, (2, 2, 3), "log_body")

    def network_pet(values: Any) -> Any:
        volumes = {"ct": tools.volume(ct, affine), "pet": tools.volume(values.astype(np.float32), affine)}
        return to_network(volumes, plan)[0][1]

    tumour = np.zeros(pet.shape, bool)
    tumour[25:32, 22:28, 12:16] = True
    warm, hot = np.where(tumour, 4 * pet.max(), pet), np.where(tumour, 40 * pet.max(), pet)
    array = network_pet(warm)
    np.testing.assert_allclose(network_pet(2e4 * warm), array, atol=1e-4)  # Bq/mL instead of SUV
    changed = network_pet(hot) != array
    assert 0 < changed.sum() < 4 * tumour.sum()  # the tumour and its seam, by interpolation
    assert np.median(array[array > array.min() + 0.1]) == pytest.approx(0, abs=0.2)
    assert array.min() == pytest.approx(np.log2(0.2), abs=1e-4)


def test_a_pet_of_nothing_is_finite(tools: Any) -> None:
    air = tools.volume(np.zeros((8, 8, 8), np.float32), np.eye(4))
    array, _ = to_network({"pet": air}, tools.plan({"pet": "pet"}, (1, 1, 1), "log_body"))
    np.testing.assert_allclose(array, np.log2(0.2), atol=1e-5)
    hardly = tools.volume(np.full((8, 8, 8), 1e-42, np.float32), np.eye(4))
    assert np.isfinite(to_network({"pet": hardly}, tools.plan({"pet": "pet"}, (1, 1, 1), "log_body"))[0]).all()


def test_image_smaller_than_the_patch_and_without_body_works(tools: Any) -> None:
    tiny = tools.volume(np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32), np.eye(4))
    array, _ = to_network({"t1": tiny}, tools.plan({"t1": "mr"}, (1, 1, 1), "zscore_body"))
    assert array.shape == (1, 5, 4, 3)
    air = tools.volume(np.full((8, 8, 8), -1000, np.float32), np.eye(4))
    array, _ = to_network({"ct": air}, tools.plan({"ct": "ct"}, (1, 1, 1)))
    assert array.shape == (1, 8, 8, 8)


def test_placement_survives_json(tools: Any) -> None:
    grid = oriented((2, 0, 1), (1, -1, 1), True)
    image = tools.volume(tools.phantom("ct", SHAPE, grid.affine), grid.affine)
    _, placement = to_network({"ct": image}, tools.plan({"ct": "ct"}, (2, 2, 2)))
    assert Placement.from_json(json.loads(json.dumps(placement.to_json()))) == placement
    corner = placement.network_to_reference @ [0, 0, 0, 1]
    np.testing.assert_allclose(grid.affine @ corner, placement.network.affine[:, 3], atol=1e-9)


def test_missing_modality_is_named(tools: Any) -> None:
    image = tools.volume(np.ones((4, 4, 4), np.float32), np.eye(4))
    with pytest.raises(DatasetError, match="modality pet is missing, found ct"):
        to_network({"ct": image}, tools.plan({"ct": "ct", "pet": "pet"}, (1, 1, 1)))
