"""A tiny model with random weights, a tiny case, and a runtime that is plain arithmetic."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veloxseg.console import set_quiet
from veloxseg.image import Geometry, Volume, write
from veloxseg.model_folder import ModelFolder
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan
from veloxseg.runtimes.native.runtime import is_built

FORMS = ("native", "openvino", "onnx") if is_built() else ("openvino", "onnx")
PATCH = (64, 64, 32)  # the last stage is left with 2 x 2 x 1 voxels, enough for its instance norm


def build_plan(classes: int = 2, *, regions: dict[str, tuple[int, ...]] | None = None, **changes) -> Plan:
    ct = Normalisation(scheme="clip_zscore", low=-1000, high=1000, mean=0, std=400)
    values = {
        "dataset": "test",
        "modalities": (
            ModalityPlan(name="ct", kind="ct", normalisation=ct),
            ModalityPlan(name="pet", kind="pet", normalisation=Normalisation(scheme="zscore_body")),
        ),
        "reference": "ct",
        "spacing": (2.0, 2.0, 2.0),
        "patch": PATCH,
        "windows": (),
        "labels": {"background": 0, **{f"label{i}": i for i in range(1, classes)}},
        "regions": regions,
    }
    return Plan(**{**values, **changes})


def save_model(folder: Path, plan: Plan, seed: int = 0, **provenance) -> Path:
    """VeloxSeg with random weights; the head's bias is set so that some voxels are labelled."""
    import torch
    from safetensors.torch import save_file

    from veloxseg.model.config import NetworkConfig
    from veloxseg.model.network import VeloxSeg

    torch.manual_seed(seed)
    config = NetworkConfig(in_channels=(1,) * len(plan.modalities), classes=len(plan.outputs), patch=plan.patch)
    network = VeloxSeg(config)
    for module in network.modules():  # biases and affines at other than their first values
        for name, parameter in module.named_parameters(recurse=False):
            if name in ("bias", "table"):
                torch.nn.init.normal_(parameter, std=0.2)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), folder / "model.safetensors")
    ModelFolder(
        path=folder, architecture="veloxseg", network=config.to_json(), plan=plan, provenance=provenance
    ).write_description()
    return folder


def build_scans(shape: tuple[int, int, int] = (80, 70, 50), seed: int = 0, affine=None) -> dict[str, Volume]:
    """A body of soft tissue in air with a hot spot, as CT and PET on one grid."""
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"))
    body = (grid**2).sum(0) < 0.9
    hot = ((grid - 0.2) ** 2).sum(0) < 0.05
    noise = random.standard_normal((2, *shape)).astype(np.float32)
    ct = np.where(body, 40 + 10 * noise[0], -1000).astype(np.float32)
    pet = (np.where(body, 1 + 0.2 * noise[1], 0) + 8 * hot).astype(np.float32)
    geometry = Geometry(shape=shape, affine=np.diag([2.0, 2.0, 2.0, 1.0]) if affine is None else affine)
    return {name: Volume(array=array, geometry=geometry) for name, array in (("ct", ct), ("pet", pet))}


class Arithmetic:
    """A runtime of plain arithmetic: the difference (or the scores) depends on the voxel and on its window."""

    name, threads, windows_at_once = "arithmetic", 1, 1

    def __init__(self, outputs: int) -> None:
        self.outputs, self.calls = outputs, 0

    def __call__(self, window_1CXYZ: np.ndarray) -> np.ndarray:
        self.calls += 1
        base = window_1CXYZ[0].sum(0)
        ramp = np.linspace(-1, 1, base.shape[0], dtype=np.float32)[:, None, None]
        return np.stack([base * (k + 1) * 0.3 + np.sin(3 * k + base) + ramp * k for k in range(self.outputs)])[None]


def write_quick(network, window, into: Path) -> None:
    """A writer of graphs for tests of the cache: the bytes of the network's tensors."""
    (into / "quick.bin").write_bytes(b"".join(tensor.numpy().tobytes() for tensor in network.state_dict().values()))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Graphs that tests make do not land in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def loud() -> None:
    """An earlier `--quiet` is not for this test."""
    set_quiet(False)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, model: Path) -> dict[str, Path]:
    """The model exported for each torch-free runtime."""
    from veloxseg.runtimes.export import export

    root = tmp_path_factory.mktemp("exported")
    return {form: export(model, root / form, form) for form in FORMS}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "model", build_plan())


@pytest.fixture
def case(tmp_path: Path) -> dict[str, Path]:
    """The files of one case, by modality."""
    files = {}
    for name, volume in build_scans().items():
        files[name] = tmp_path / f"{name}.nii.gz"
        write(volume, files[name])
    return files


# test modules cannot import from here, so the makers are fixtures
@pytest.fixture(scope="session")
def make_plan():
    return build_plan


@pytest.fixture(scope="session")
def write_model():
    return save_model


@pytest.fixture(scope="session")
def make_scans():
    return build_scans


@pytest.fixture(scope="session")
def arithmetic():
    return Arithmetic
