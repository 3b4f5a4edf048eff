"""nnU-Net's pipeline by its properties; `make test-nnunet` compares it with nnU-Net itself."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import ndimage

from support.models import Arithmetic
from support.nnunet_data import case_volumes
from veloxseg.errors import ModelError
from veloxseg.image import Geometry, Volume
from veloxseg.image.resample import resample_image
from veloxseg.predict.nnunet import CropPlacement, restore, shared_columns, to_network, window_weights
from veloxseg.predict.sliding import Slab, score_slabs, strips_within
from veloxseg.prepare.plan import ModalityPlan, NnunetSteps, Normalisation, Plan, Resampling
from veloxseg.runtimes.decoding import Decoding

STEPS = NnunetSteps(axes=(0, 1, 2), image=Resampling(order=3, slice_order=0), scores=Resampling(order=1, slice_order=0))


def make_plan(
    axes=(0, 1, 2), spacing=(2.0, 1.5, 1.5), patch=(32, 32, 32), scheme: str = "zscore_crop", **changes
) -> Plan:
    kinds = (("ct", Normalisation(scheme="clip_zscore", low=-250, high=200, mean=0, std=100)),)
    kinds += (("pet", Normalisation(scheme=scheme)),)
    return Plan(
        **{
            "dataset": "test",
            "modalities": tuple(ModalityPlan(name=n, kind=n, normalisation=s) for n, s in kinds),
            "reference": "ct",
            "spacing": spacing,
            "patch": patch,
            "windows": (),
            "labels": {"background": 0, "organ": 1, "lesion": 2},
            "format": 2,
            "pipeline": "nnunet",
            "nnunet": dataclasses.replace(STEPS, axes=axes),
            **changes,
        }
    )


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_another_order_of_axes_is_the_same_input_turned(axes: tuple[int, int, int]) -> None:
    scans, _ = case_volumes(1)
    spacing = (2.0, 1.6, 1.4)
    straight, placed = to_network(scans, make_plan(spacing=spacing))
    turned, where = to_network(scans, make_plan(axes=axes, spacing=tuple(spacing[axis] for axis in axes)))
    assert np.abs(turned - straight.transpose(0, *(axis + 1 for axis in axes))).max() < 1e-5
    corner = np.array([1, 2, 3])
    index = np.empty(3)
    index[list(axes)] = corner  # the same voxel on both grids lies at the same place in the patient
    ours, theirs = (
        g.affine[:3, :3] @ i + g.affine[:3, 3] for g, i in ((where.network, corner), (placed.network, index))
    )
    assert np.allclose(ours, theirs)


def test_scans_are_taken_as_stored() -> None:
    """A scan that is stored backwards gives an input that runs backwards, as in nnU-Net."""
    scans, _ = case_volumes(0)
    backwards = {
        name: Volume(array=v.array[::-1], geometry=Geometry(shape=v.geometry.shape, affine=flipped(v.geometry)))
        for name, v in scans.items()
    }
    one, other = (to_network(volumes, make_plan())[0] for volumes in (scans, backwards))
    assert np.abs(one[..., ::-1] - other).max() < 1e-5


def flipped(geometry: Geometry) -> np.ndarray:
    turn = np.diag([-1.0, 1, 1, 1])
    turn[0, 3] = geometry.shape[0] - 1
    return geometry.affine @ turn


def test_what_is_zero_is_cropped() -> None:
    scans, _ = case_volumes(0)
    _, placement = to_network(scans, make_plan())
    x, y, z = scans["ct"].array.shape
    assert placement.crop == (z, y - 2, x - 1)


def test_normalisations() -> None:
    scans, _ = case_volumes(0)
    same = dict(zip(("spacing",), (scans["ct"].geometry.spacing[::-1],), strict=True))
    crop = to_network(scans, make_plan(**same))[0][1]
    assert abs(crop.mean()) < 1e-4
    assert abs(crop.std() - 1) < 1e-4
    ranged = to_network(scans, make_plan(scheme="range_01", **same))[0][1]
    assert (ranged.min(), ranged.max()) == (0, 1)
    masked = to_network(scans, make_plan(scheme="zscore_nonzero", **same))[0][1]
    assert abs(masked.mean()) < 1e-4  # all of the crop is filled here
    raw = to_network(scans, make_plan(scheme="none", **same))[0][1]
    assert np.array_equal(to_network(scans, make_plan(scheme="bytes_01", **same))[0][1], raw / np.float32(255))


def test_scans_on_different_grids_are_brought_together(capsys: pytest.CaptureFixture[str]) -> None:
    """PET with half the voxels lies where it lay; nnU-Net would refuse it, so it is told."""
    scans, _ = case_volumes(0)
    pet = scans["pet"]
    ramp = np.linspace(1, 5, pet.array.shape[2], dtype=np.float32)
    smooth = Volume(array=np.broadcast_to(ramp, pet.array.shape), geometry=pet.geometry)
    x, y, z = (n // 2 for n in pet.array.shape)
    affine = pet.geometry.affine @ np.diag([2.0, 2, 2, 1])
    affine[:3, 3] += pet.geometry.affine[:3, :3] @ [0.5, 0.5, 0.5]
    half = resample_image(smooth, Geometry(shape=(x, y, z), affine=affine), "linear", 0.0)
    coarse = Volume(array=half, geometry=Geometry(shape=(x, y, z), affine=affine))
    plan = make_plan(scheme="none")
    one, other = (to_network({**scans, "pet": volume}, plan)[0] for volume in (smooth, coarse))
    assert np.abs(one[1] - other[1])[2:-2, 2:-2, 2:-2].max() < 0.05
    assert "pet is resampled to the grid of ct" in capsys.readouterr().err


def placement(crop: tuple[int, int, int], network: tuple[int, int, int], spacing, axes=(2, 0, 1)) -> CropPlacement:
    """A crop inside a scan that is larger by a few voxels."""
    scan_spacing = np.array(spacing) * network / np.array(crop)
    shape, along = [0, 0, 0], [0.0, 0.0, 0.0]
    for axis, n, mm in zip(axes, crop, scan_spacing, strict=True):
        shape[2 - axis], along[2 - axis] = n + 5, mm
    geometry = Geometry(shape=tuple(shape), affine=np.diag([*along, 1.0]))
    box = tuple(slice(2, 2 + n) for n in crop)
    steps = dataclasses.replace(STEPS, axes=axes)
    return CropPlacement(scan=geometry, steps=steps, spacing=spacing, box=box, network_shape=network)


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize(
    ("crop", "network"), [((21, 18, 25), (14, 18, 9)), ((8, 9, 7), (20, 15, 13)), ((6, 7, 8), (6, 7, 8))]
)
def test_the_way_back_is_a_linear_zoom(crop, network, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the slabs: the same labels as from all logits at once."""
    monkeypatch.setattr("veloxseg.predict.nnunet.chunk_voxels", lambda channels: 500)
    scores = np.random.default_rng(0).standard_normal((3, *network)).astype(np.float32)
    decoding, where = Decoding(make_plan()), placement(crop, network, (1.0, 1.0, 1.0))
    slabs = (Slab(begin, scores[:, begin : begin + rows]) for begin in range(0, network[0], rows))
    found = restore(slabs, where, decoding, probabilities=True)
    factors = [n / m for n, m in zip(crop, network, strict=True)]
    whole = np.stack([ndimage.zoom(s, factors, order=1, mode="nearest", grid_mode=True) for s in scores])
    inside = found.labels.T.transpose(where.steps.axes)[where.box]
    assert (inside == decoding.labels(whole)).mean() > 0.999
    assert found.labels.astype(bool).sum() == inside.astype(bool).sum()  # nothing outside the crop
    assert set(found.probabilities) == {"organ", "lesion"}


@pytest.mark.parametrize("order", [0, 1, 3, 5])
@pytest.mark.parametrize("columns", [(330, 220), (150, 220), (220, 220)])
def test_the_way_back_in_strips_gives_what_one_strip_gives(columns, order: int) -> None:
    """Splines of a higher order depend on voxels far away, and strips have as many in common."""
    steps = dataclasses.replace(STEPS, scores=dataclasses.replace(STEPS.scores, order=order, by_slices=False))
    plan = make_plan(nnunet=steps)
    crop, network = (7, columns[0], 6), (5, columns[1], 4)
    where = dataclasses.replace(
        placement(crop, network, (1.0, 1.0, 1.0)), steps=dataclasses.replace(steps, axes=(2, 0, 1))
    )
    scores = np.random.default_rng(0).standard_normal((3, *network)).astype(np.float32)
    whole = restore([Slab(0, scores)], where, Decoding(plan), probabilities=True)
    strips = strips_within(0, network, network, 3, shared_columns(where.scan, plan))
    assert len(strips) > 1
    slabs = [Slab(a, scores[:, a : a + 2, strip], strip.start) for strip in strips for a in range(0, 5, 2)]
    found = restore(slabs, where, Decoding(plan), probabilities=True)
    assert whole.labels.any()
    assert (found.labels == whole.labels).all()
    for name, probability in whole.probabilities.items():
        assert (found.probabilities[name] == probability).all()


def test_between_coarse_slices_the_nearest_is_taken() -> None:
    scores = np.random.default_rng(0).standard_normal((3, 6, 8, 8)).astype(np.float32)
    where = placement((12, 8, 8), (6, 8, 8), (8.0, 1.0, 1.0))
    found = restore([Slab(0, scores)], where, Decoding(make_plan()))
    inside = found.labels.T.transpose(where.steps.axes)[where.box]
    assert np.array_equal(inside, np.repeat(scores.argmax(axis=0), 2, axis=0))


def test_weights_of_windows() -> None:
    weights = window_weights((32, 40, 48))
    assert weights.max() == weights[16, 20, 24] == 10
    assert weights.min() > 0


def test_windows_are_weighted_sums_over_sums_of_weights() -> None:
    """The slabs are what sums over the whole volume give, empty windows included."""
    plan = make_plan(patch=(8, 8, 8))
    image = np.random.default_rng(0).standard_normal((2, 19, 13, 6)).astype(np.float32)
    image[:, :8] = 0
    runtime, weights = Arithmetic(3), np.random.default_rng(1).random((8, 8, 8), np.float32)
    slabs = [s.scores_SXYZ.copy() for s in score_slabs(image, runtime, plan, own_weights=weights)]
    padded = np.pad(image, ((0, 0), (0, 0), (0, 0), (1, 1)))
    total, count = np.zeros((3, 19, 13, 8)), np.zeros((19, 13, 8))
    for x, y in itertools.product((0, 4, 7, 11), (0, 2, 5)):
        window = padded[None, :, x : x + 8, y : y + 8]
        total[:, x : x + 8, y : y + 8] += runtime(window)[0] * weights
        count[x : x + 8, y : y + 8] += weights
    assert np.allclose(np.concatenate(slabs, axis=1), (total / count)[..., 1:7], atol=1e-4)


def test_a_plan_is_of_one_pipeline() -> None:
    with pytest.raises(ModelError, match="do not go together"):
        make_plan(format=1)
    with pytest.raises(ModelError, match="do not go together"):
        make_plan(nnunet=None)
    with pytest.raises(ModelError, match="zscore_body"):
        make_plan(scheme="zscore_body")


def test_a_plan_of_ours_is_written_as_before(make_plan) -> None:
    """Hashes of plans tell whether a case is prepared or predicted."""
    assert not {"pipeline", "nnunet"} & make_plan().to_json().keys()
