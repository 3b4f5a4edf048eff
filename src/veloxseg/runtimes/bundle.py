"""A MONAI bundle: TorchScript weights with MONAI's own configuration files. Imports torch.

`python -m monai.bundle run` segments images that already lie on the plan's grid and are normalised; the bundle's
docs/README.md says how, the exact preprocessing is in `docs/model.json`, and `veloxseg predict` does it in full.
"""

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from veloxseg import __version__
from veloxseg.files import atomic_path, writable_folder, write_json
from veloxseg.machine import NOTICE
from veloxseg.model_folder import JSON_NAME, ModelFolder, load_network
from veloxseg.runtimes.decoding import Decoding

__all__ = ["write_bundle"]

FIRST = "_0000.nii.gz"  # how the first modality of a case ends
SAVE = {
    "_target_": "SaveImaged",
    "keys": "pred",
    "output_dir": "@output_dir",
    "output_postfix": "mask",
    "output_dtype": "$torch.int16",
    "separate_folder": False,
    "resample": False,
}
README = """# {title}

    python -m monai.bundle run --config_file configs/inference.json --bundle_root . --dataset_dir data

writes a mask of each case to `eval`. In the folder `data` a case is one NIfTI file per modality: {files}. The images
must lie on the network's grid (spacing {spacing} mm) and be normalised as `plan` in model.json says; `veloxseg predict`
does both by itself. MONAI's command line needs the package fire.

{notice}
"""


def write_bundle(source: ModelFolder, target: Path) -> None:
    """Writes configs/, models/model.ts and docs/."""
    for name in ("configs", "models", "docs"):
        writable_folder(target / name)
    plan = source.plan
    window = torch.zeros(1, len(plan.names), *plan.patch)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # tracing warns that shapes are fixed, which is on purpose
        traced = torch.jit.trace(load_network(source), window, check_trace=False)
        with atomic_path(target / "models" / "model.ts") as path:
            traced.save(str(path))
    write_json(target / "configs" / "metadata.json", _metadata(source))
    write_json(target / "configs" / "inference.json", _inference(source))
    shutil.copyfile(source.path / JSON_NAME, target / "docs" / JSON_NAME)
    with atomic_path(target / "docs" / "README.md") as path:
        path.write_text(_readme(source), encoding="utf-8")


def _readme(source: ModelFolder) -> str:
    """How to run the bundle."""
    plan = source.plan
    return README.format(
        title=f"VeloxSeg {plan.dataset}",
        files=", ".join(f"`case_{i:04d}.nii.gz` ({name})" for i, name in enumerate(plan.names)),
        spacing=" × ".join(f"{side:g}" for side in plan.spacing),
        notice=NOTICE,
    )


def _metadata(source: ModelFolder) -> dict[str, Any]:
    plan = source.plan
    image = {
        "type": "image",
        "format": "magnitude",
        "num_channels": len(plan.names),
        "spatial_shape": list(plan.patch),
        "dtype": "float32",
        "value_range": [],
        "is_patch_data": True,
        "channel_def": {str(i): name for i, name in enumerate(plan.names)},
    }
    prediction = {
        **image,
        "format": "segmentation",
        "num_channels": len(plan.outputs),
        "channel_def": {str(i): name for i, name in enumerate(plan.outputs)},
    }
    return {
        "version": __version__,
        "changelog": {__version__: "exported by veloxseg"},
        "monai_version": "1.4.0",
        "pytorch_version": torch.__version__.split("+")[0],
        "numpy_version": "1.26.0",
        "name": f"VeloxSeg {plan.dataset}",
        "task": f"segmentation of {', '.join(plan.outputs)}",
        "description": f"{source.architecture}, modalities {', '.join(plan.names)}",
        "intended_use": NOTICE,
        "network_data_format": {"inputs": {"image": image}, "outputs": {"pred": prediction}},
    }


def _inference(source: ModelFolder) -> dict[str, Any]:
    """What `monai.bundle run` does: MONAI reads the images, slides its window over them and writes a mask of each."""
    modalities = len(source.plan.names)
    return {
        "imports": ["$import functools", "$import glob", "$import torch"],
        "bundle_root": ".",
        "dataset_dir": "$@bundle_root + '/data'",
        "output_dir": "$@bundle_root + '/eval'",
        "device": "$torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "network": "$torch.jit.load(@bundle_root + '/models/model.ts').to(@device).eval()",
        "inferer": {
            "_target_": "SlidingWindowInferer",
            "roi_size": list(source.plan.patch),
            "sw_batch_size": 1,
            "overlap": 0.5,
            "mode": "gaussian",
        },
        "first_images": f"$sorted(glob.glob(@dataset_dir + '/*{FIRST}'))",
        "images_of": f"$lambda first: [first[:-{len(FIRST)}] + '_%04d.nii.gz' % i for i in range({modalities})]",
        "datalist": "$[{'image': images} for images in map(@images_of, @first_images)]",
        "preprocessing": {"_target_": "LoadImaged", "keys": "image", "ensure_channel_first": True},
        "dataset": {"_target_": "Dataset", "data": "@datalist", "transform": "@preprocessing"},
        "postprocessing": {"_target_": "Compose", "transforms": [*_labels(source), SAVE]},
        "initialize": ["$torch.set_grad_enabled(False)"],
        "segment": (
            "$lambda case: @postprocessing({'pred': @inferer(case['image'][None].to(@device), @network)[0].cpu()})"
        ),
        "run": ["$list(map(@segment, @dataset))"],
    }


def _labels(source: ModelFolder) -> list[dict[str, Any]]:
    """MONAI's transforms from logits to label values, as decoding.py has it."""
    values = list(Decoding(source.plan).values)
    if source.plan.regions is None:
        return [
            {"_target_": "AsDiscreted", "keys": "pred", "argmax": True},
            {
                "_target_": "MapLabelValued",
                "keys": "pred",
                "orig_labels": list(range(len(values))),
                "target_labels": values,
            },
        ]
    chosen = "torch.where(region[0] > 0, region[1], labels)"  # a later region lies inside an earlier one
    order = f"zip(x.split(1), {values})"
    return [
        {
            "_target_": "Lambdad",
            "keys": "pred",
            "func": f"$lambda x: functools.reduce(lambda labels, region: {chosen}, {order}, 0 * x[:1])",
        }
    ]
