"""Exported folders hold what prediction needs, and refuse what would be wrong."""

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from veloxseg.cli import main
from veloxseg.errors import ConfigError, ModelError
from veloxseg.files import read_json, sha256
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.predict.sliding import predict_labels
from veloxseg.runtimes import open_runtime
from veloxseg.runtimes.export import export
from veloxseg.runtimes.parity import check_parity


def test_an_exported_folder_describes_itself(exported, model):
    for form, folder in exported.items():
        opened = ModelFolder.open(folder)
        assert opened.plan == ModelFolder.open(model).plan
        assert opened.provenance["weights_sha256"] == sha256(model / "model.safetensors")
        assert opened.provenance["exported_to"] == form
        report = read_json(folder / "parity.json")
        assert {row["window"] for row in report["windows"]} >= {"random", "sparse 0.02%", "sparse 5.00%", "body"}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torch_and_monai_bundle(model, tmp_path):
    import torch

    assert main(["export", "-m", str(model), "-o", str(tmp_path / "torch"), "--format", "torch", "--quiet"]) == 0
    assert sha256(tmp_path / "torch" / "model.safetensors") == sha256(model / "model.safetensors")
    bundle = export(model, tmp_path / "bundle", "monai-bundle")
    plan = ModelFolder.open(model).plan
    network = torch.jit.load(bundle / "models" / "model.ts")
    with torch.inference_mode():
        assert network(torch.zeros(1, 2, *plan.patch)).shape == (1, 2, *plan.patch)
    inference = read_json(bundle / "configs" / "inference.json")
    assert inference["inferer"]["roi_size"] == list(plan.patch)
    assert read_json(bundle / "configs" / "metadata.json")["intended_use"].startswith("research use only")


@pytest.mark.filterwarnings("ignore")
def test_monai_runs_the_bundle(model, tmp_path):
    """MONAI's own parser builds network and sliding window, and they compute what the model computes."""
    import numpy as np
    import torch
    from monai.bundle import ConfigParser

    bundle = export(model, tmp_path / "bundle", "monai-bundle")
    parser = ConfigParser()
    parser.read_meta(bundle / "configs" / "metadata.json")
    parser.read_config(bundle / "configs" / "inference.json")
    parser["bundle_root"] = str(bundle)
    network, inferer = parser.get_parsed_content("network"), parser.get_parsed_content("inferer")
    folder = ModelFolder.open(model)
    size = [side + side // 4 for side in folder.plan.patch]
    image = np.random.default_rng(0).standard_normal((2, *size), np.float32)
    with torch.inference_mode():
        scores, expected = (inferer(torch.from_numpy(image)[None], net) for net in (network, load_network(folder)))
    torch.testing.assert_close(scores, expected)
    ours = predict_labels(image, open_runtime(folder, "torch"), folder.plan, overlap=0.5)
    # MONAI's Gaussian is cut off at 0.001, which matters in the corners of noise under random weights
    assert (scores.argmax(1)[0].numpy() == ours).mean() > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("regions", [None, {"whole": (1, 2), "core": (2,)}], ids=["classes", "regions"])
def test_monais_own_command_runs_the_bundle(regions, write_model, make_plan, tmp_path):
    """`monai.bundle run` on a folder of images on the network's grid gives the labels that we give."""
    import nibabel
    import numpy as np

    plan = make_plan(2, labels={"background": 0, "whole": 1, "core": 2}, regions=regions, patch=(32, 32, 32))
    model = write_model(tmp_path / "model", plan)
    bundle = export(model, tmp_path / "bundle", "monai-bundle")
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    images = np.random.default_rng(0).standard_normal((2, 2, 40, 36, 32)).astype(np.float32)
    (bundle / "data").mkdir()
    for case, image in zip(("anna", "ben"), images, strict=True):
        for i, channel in enumerate(image):
            nibabel.save(nibabel.Nifti1Image(channel, affine), bundle / "data" / f"{case}_{i:04d}.nii.gz")
    options = {"config_file": "configs/inference.json", "bundle_root": "."}
    if find_spec("fire") is not None:
        command = ["-m", "monai.bundle", "run", *(f"--{name}={value}" for name, value in options.items())]
    else:  # all that MONAI's command line does with it
        command = ["-c", f"from monai.bundle import run; run(**{options})"]
    done = subprocess.run([sys.executable, *command], cwd=bundle, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    folder = ModelFolder.open(model)
    for case, image in zip(("anna", "ben"), images, strict=True):
        mask = nibabel.load(bundle / "eval" / f"{case}_0000_mask.nii.gz")
        np.testing.assert_allclose(mask.affine, affine)
        found = np.asarray(mask.dataobj).squeeze()
        ours = predict_labels(image, open_runtime(folder, "torch"), folder.plan, overlap=0.5)
        assert set(np.unique(found)) == set(np.unique(ours)) == {0, 1, 2}
        # MONAI's Gaussian is cut off at 0.001, which matters in the corners of noise under random weights
        assert (found == ours).mean() > 0.9


def test_what_is_refused(model, tmp_path):
    with pytest.raises(ConfigError, match="choose from"):
        export(model, tmp_path, "tflite")
    with pytest.raises(ConfigError, match="the model itself"):
        export(model, model, "onnx")
    with pytest.raises(ModelError, match="differs from the network"):
        check_parity({"worst_probability_difference": 2e-3, "worst_equal_labels": 1.0})
    with pytest.raises(ModelError, match="differs from the network"):
        check_parity({"worst_probability_difference": 0.0, "worst_equal_labels": 0.999})


@pytest.mark.parametrize("changes", [{"attention": "none"}, {"attention": "window", "head": "transposed"}], ids=str)
@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
def test_the_papers_ablations_are_exported_and_equal(changes, tmp_path):
    """They are a `--set` away, so the runtime that `auto` chooses must take them; export compares them with float64."""
    import torch

    from support.tiny_training import TINY, plan_of
    from veloxseg.model_folder import build_network, save_weights

    plan = plan_of(patch=(32, 32, 32))
    settings = replace(TINY, patch=plan.patch, **changes).to_json()
    folder = ModelFolder(path=tmp_path, architecture="veloxseg", network=settings, plan=plan, provenance={})
    folder.write_description()
    torch.manual_seed(0)
    save_weights(build_network("veloxseg", settings), folder.weights)
    export(tmp_path, tmp_path / "openvino", "openvino")
    check_parity(read_json(tmp_path / "openvino" / "parity.json"))
