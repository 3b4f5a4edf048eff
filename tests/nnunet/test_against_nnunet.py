"""Our pipeline and nnU-Net's, side by side: the same network input, the same masks."""

import itertools
import json
import os
from pathlib import Path

import nibabel
import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.image import Geometry, Volume
from veloxseg.nnunet.checkpoint import find_folds
from veloxseg.nnunet.commands import predict
from veloxseg.nnunet.stock import MODULE
from veloxseg.predict.nnunet import restore, to_network, window_weights
from veloxseg.predict.sliding import Slab
from veloxseg.prepare.plan import ModalityPlan, NnunetSteps, Normalisation, Plan, Resampling
from veloxseg.runtimes.decoding import Decoding

pytestmark = pytest.mark.filterwarnings("ignore")  # of nnU-Net and what it imports

SPACINGS = [(1.0, 1.0, 1.0), (2.0, 1.5, 1.2), (1.0, 1.0, 5.0), (0.9, 3.1, 0.9)]  # of the scan, (x, y, z)
TARGETS = [(1.0, 1.0, 1.0), (2.0, 1.4, 1.1), (3.5, 1.0, 1.0), (1.0, 4.0, 1.0)]  # along the network's axes
AXES = [(0, 1, 2), (2, 0, 1), (1, 2, 0)]
SPLINES = {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None}
LABELS = {"labels": {"background": 0, "organ": 1, "lesion": 2}}
CT = {"mean": 90.0, "std": 200.0, "percentile_00_5": -300.0, "percentile_99_5": 600.0}


@pytest.fixture(scope="module")
def nnunet() -> None:
    pytest.importorskip("nnunetv2", reason="needs the extra nnunet; `make test-nnunet` has it")


def as_plans(target, masked: bool, axes):
    from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

    name = "resample_data_or_seg_to_shape"
    configuration = {
        "spacing": list(target),
        "patch_size": [32, 32, 32],
        "normalization_schemes": ["CTNormalization", "ZScoreNormalization"],
        "use_mask_for_norm": [False, masked],
        "resampling_fn_data": name,
        "resampling_fn_data_kwargs": SPLINES,
        "resampling_fn_probabilities": name,
        "resampling_fn_probabilities_kwargs": {**SPLINES, "order": 1},
        "resampling_fn_seg": name,
        "resampling_fn_seg_kwargs": {**SPLINES, "is_seg": True, "order": 1},
        "architecture": {},
    }
    return PlansManager(
        {
            "transpose_forward": list(axes),
            "transpose_backward": [axes.index(n) for n in range(3)],
            "label_manager": "LabelManager",
            "foreground_intensity_properties_per_channel": {"0": CT, "1": {}},
            "configurations": {"3d": configuration},
        }
    )


def as_nnunet(ct: np.ndarray, mr: np.ndarray, spacing, target, masked: bool, axes) -> np.ndarray:
    from nnunetv2.preprocessing.preprocessors.default_preprocessor import DefaultPreprocessor

    plans, properties = as_plans(target, masked, axes), {"spacing": list(spacing[::-1])}
    scans = np.stack([ct.T, mr.T])
    preprocessor = DefaultPreprocessor(verbose=False)
    return preprocessor.run_case_npy(scans, None, properties, plans, plans.get_configuration("3d"), LABELS)[0]


def our_plan(target, masked: bool, axes) -> Plan:
    clip = Normalisation(scheme="clip_zscore", low=-300, high=600, mean=90, std=200)
    zscore = Normalisation(scheme="zscore_nonzero" if masked else "zscore_crop")
    return Plan(
        dataset="test",
        modalities=(
            ModalityPlan(name="ct", kind="ct", normalisation=clip),
            ModalityPlan(name="mr", kind="mr", normalisation=zscore),
        ),
        reference="ct",
        spacing=target,
        patch=(32, 32, 32),
        windows=(),
        labels=LABELS["labels"],
        format=2,
        pipeline="nnunet",
        nnunet=NnunetSteps(
            axes=axes, image=Resampling(order=3, slice_order=0), scores=Resampling(order=1, slice_order=0)
        ),
    )


def as_ours(ct: np.ndarray, mr: np.ndarray, spacing, target, masked: bool, axes) -> np.ndarray:
    plan, geometry = our_plan(target, masked, axes), Geometry(shape=ct.shape, affine=np.diag([*spacing, 1.0]))
    return to_network({n: Volume(array=a, geometry=geometry) for n, a in (("ct", ct), ("mr", mr))}, plan)[0]


def test_preprocessing_is_nnunets(nnunet: None) -> None:
    """Over spacings, masks and transposes, every voxel within 1e-5."""
    random = np.random.default_rng(0)
    for spacing, target, masked, axes in itertools.product(SPACINGS, TARGETS, (False, True), AXES):
        shape = (23, 31, 27)
        ct = random.normal(100, 300, shape).astype(np.float32)
        mr = random.gamma(2, 100, shape).astype(np.float32)
        for scan in (ct, mr):
            scan[:4] = scan[:, -3:] = scan[10:13, 10:13, 10:13] = 0  # a border to crop and a hole to fill
        theirs, ours = (f(ct, mr, spacing, target, masked, axes) for f in (as_nnunet, as_ours))
        assert ours.shape == theirs.shape, (spacing, target, masked, axes)
        assert np.abs(ours - theirs).max() < 1e-5, (spacing, target, masked, axes)


def test_the_way_back_is_nnunets(nnunet: None) -> None:
    """From logits on the network's grid to labels of the scan, over spacings and transposes: every voxel."""
    from nnunetv2.inference.export_prediction import convert_predicted_logits_to_segmentation_with_correct_shape

    random = np.random.default_rng(0)
    scan = np.ones((23, 31, 27), np.float32)
    scan[:4] = scan[:, -3:] = 0
    for spacing, target, axes in itertools.product(SPACINGS, TARGETS, AXES):
        geometry, plan = Geometry(shape=scan.shape, affine=np.diag([*spacing, 1.0])), our_plan(target, False, axes)
        volume = Volume(array=scan, geometry=geometry)
        image, where = to_network({"ct": volume, "mr": volume}, plan)
        logits = random.standard_normal((3, *image.shape[1:])).astype(np.float32)
        ours = restore([Slab(0, logits)], where, Decoding(plan)).labels
        plans, shape = as_plans(target, False, axes), [scan.T.shape[axis] for axis in axes]
        properties = {
            "spacing": list(spacing[::-1]),
            "shape_before_cropping": shape,
            "shape_after_cropping_and_before_resampling": where.crop,
            "bbox_used_for_cropping": [[side.start, side.stop] for side in where.box],
        }
        theirs = convert_predicted_logits_to_segmentation_with_correct_shape(
            logits, plans, plans.get_configuration("3d"), plans.get_label_manager(LABELS), properties
        )
        assert np.array_equal(ours.T, theirs), (spacing, target, axes)


@pytest.mark.parametrize("patch", [(32, 32, 32), (40, 56, 40), (28, 96, 33)])
def test_weights_of_windows_are_nnunets(nnunet: None, patch: tuple[int, int, int]) -> None:
    import torch
    from nnunetv2.inference.sliding_window_prediction import compute_gaussian

    theirs = compute_gaussian(patch, 1 / 8, value_scaling_factor=10, device=torch.device("cpu")).float().numpy()
    assert np.abs(window_weights(patch) / theirs - 1).max() < 2e-3  # one step of half precision
    assert (window_weights(patch) == theirs).mean() > 0.999


class Torch32:
    """torch, with single for half precision: nnU-Net then sums logits in float32."""

    def __getattr__(self, name: str):
        import torch

        return torch.float32 if name == "half" else getattr(torch, name)


def nnunet_masks(results: Path, images: Path, into: Path, monkeypatch, *, exact: bool, mirror: bool) -> Path:
    import nnunetv2.inference.predict_from_raw_data as module

    with monkeypatch.context() as patch:
        if exact:
            patch.setattr(module, "torch", Torch32())
        predict(results, images, into, mirror=mirror, threads=1)
    return into


def voxels(path: Path) -> np.ndarray:
    return np.asarray(nibabel.load(path).dataobj)


def compare(results: Path, images: Path, tmp_path: Path, monkeypatch, runtime: str, mirror: bool) -> None:
    """Every voxel where nnU-Net sums in float32; Dice of 0.999 as it comes."""
    exact, usual = (
        nnunet_masks(results, images, tmp_path / name, monkeypatch, exact=name == "exact", mirror=mirror)
        for name in ("exact", "usual")
    )
    assert main(["convert", str(results), "-o", str(tmp_path / "model")]) == 0
    options = ["--runtime", runtime, "--threads", "1", *(["--mirror"] if mirror else [])]
    files = ["-m", str(tmp_path / "model"), "-i", str(images), "-o", str(tmp_path / "ours")]
    assert main(["predict", *files, *options]) == 0
    masks = sorted((tmp_path / "ours").glob("*.nii.gz"))
    assert len(masks) == len(list(images.glob("*_0000.nii.gz")))
    for mask in masks:
        ours, theirs, rounded = voxels(mask), voxels(exact / mask.name), voxels(usual / mask.name)
        assert len(np.unique(theirs)) > 1  # an empty mask would prove nothing
        assert (ours == theirs).all(), f"{int((ours != theirs).sum())} voxels differ"
        for value in np.unique(theirs)[1:]:
            both = (ours == value).sum() + (rounded == value).sum()
            assert 2 * ((ours == value) & (rounded == value)).sum() / both >= 0.999
        assert np.allclose(nibabel.load(mask).affine, nibabel.load(exact / mask.name).affine)


@pytest.mark.parametrize(
    ("kind", "runtime", "mirror"),
    [("classes", "torch", True), ("classes", "native", False), ("regions", "native", False)],
)
def test_masks_of_veloxseg_are_nnunets(trained, kind, runtime, mirror, tmp_path, monkeypatch) -> None:
    """The classes are an ensemble of two folds."""
    compare(trained.results(kind), trained.images(kind), tmp_path, monkeypatch, runtime, mirror)
    folds = len(find_folds(trained.results(kind), ()))
    assert len(list((tmp_path / "model").glob("**/model.json"))) == folds


def save_untrained(workshop, kind: str, network: str) -> Path:
    """A fold of nnU-Net's own trainer with random weights, as it would save it."""
    import torch
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    os.environ.update({k: v for k, v in workshop.environment().items() if k.startswith("nnUNet_")})
    plans = {**workshop.plans(kind), "continue_training": False}
    configuration = plans["configurations"]["3d_fullres"]
    kwargs = configuration["architecture"]["arch_kwargs"]
    kwargs["features_per_stage"] = [8, 16, 16, 16][: kwargs["n_stages"]]
    if network == "ResidualEncoderUNet":
        configuration["architecture"]["network_class_name"] = f"{MODULE}.{network}"
        kwargs["n_blocks_per_stage"] = kwargs.pop("n_conv_per_stage")
    if network == "OldPlainConvUNet":
        as_before_2_5(configuration)
    name = f"nnUNetTrainer{network}"
    torch.manual_seed(0)
    made = type(name, (nnUNetTrainer,), {})(plans, "3d_fullres", 0, workshop.dataset_json(kind), torch.device("cpu"))
    made.initialize()
    for parameter in made.network.parameters():  # what is drawn first gives one class everywhere
        torch.nn.init.normal_(parameter, std=0.2)
    made.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
    made.save_checkpoint(str(Path(made.output_folder) / "checkpoint_final.pth"))
    base = Path(made.output_folder_base)
    (base / "plans.json").write_text(json.dumps(made.plans_manager.plans))
    (base / "dataset.json").write_text(json.dumps(made.dataset_json))
    return base


def as_before_2_5(configuration: dict) -> None:
    """The words in which plans told their network before nnU-Net 2.5."""
    kwargs = configuration.pop("architecture")["arch_kwargs"]
    configuration |= {"UNet_class_name": "PlainConvUNet", "UNet_base_num_features": 8, "unet_max_num_features": 16}
    configuration |= {
        "n_conv_per_stage_encoder": kwargs["n_conv_per_stage"],
        "conv_kernel_sizes": kwargs["kernel_sizes"],
    }
    configuration |= {"pool_op_kernel_sizes": kwargs["strides"], "num_pool_per_axis": [3, 3, 3]}
    configuration |= {"n_conv_per_stage_decoder": kwargs["n_conv_per_stage_decoder"]}


@pytest.mark.parametrize("network", ["PlainConvUNet", "OldPlainConvUNet", "ResidualEncoderUNet"])
def test_masks_of_nnunets_own_networks_are_nnunets(workshop, network, tmp_path, monkeypatch) -> None:
    """A stock network as a graph of OpenVINO: no torch and no nnU-Net in the MODEL. Rounding may cost a voxel."""
    import nnunetv2.inference.predict_from_raw_data as module
    import nnunetv2.training.nnUNetTrainer.nnUNetTrainer as trainers

    results, images = save_untrained(workshop, "classes", network), workshop.images("classes")
    monkeypatch.setattr(module, "recursive_find_trainer_class_by_name", lambda name: trainers.nnUNetTrainer)
    theirs = nnunet_masks(results, images, tmp_path / "theirs", monkeypatch, exact=True, mirror=False)
    model = tmp_path / "model"
    assert main(["convert", str(results), "-o", str(model)]) == 0
    assert sorted(p.name for p in model.iterdir()) == ["model.bin", "model.json", "model.xml", "parity.json"]
    assert main(["predict", "-m", str(model), "-i", str(images), "-o", str(tmp_path / "ours"), "--threads", "1"]) == 0
    for mask in sorted((tmp_path / "ours").glob("*.nii.gz")):
        expected = voxels(theirs / mask.name)
        assert len(np.unique(expected)) > 1
        assert (voxels(mask) != expected).mean() < 1e-4
