"""Makes v0.1.0/ beside this script: a small set of files as version 0.1.0 wrote them. Run it by that version:

    PYTHONPATH=/path/to/v0.1.0/src python make_legacy.py

Everything runs with relative paths inside v0.1.0/, so that no path of a machine is stored.
"""

import dataclasses
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch
os.environ["CUDA_VISIBLE_DEVICES"] = ""

HERE = Path(__file__).resolve().parent / "v0.1.0"
PRESET = "s"  # replaced by a tiny network while training
ONES = [1, 1, 1, 1]
SMALL = {"expansions": ONES, "transformer_expansions": ONES, "heads": ONES}
# arguments of dataclasses.replace(PRESETS["s"], ...)
NETWORK = {"base_width": 2, "transformer_width": 2, "group_sizes": [2, 2, 2, 2], "head_sizes": ONES, **SMALL}
# the native kernels take multiples of 8 only, so there is a second network for them
NATIVE = {
    "base_width": 8,
    "transformer_width": 8,
    "kernel_sizes": [1],
    "group_sizes": ONES,
    "head_sizes": [4, 4, 4, 8],
    **SMALL,
}
ORIGINAL: dict = {}  # the presets as they were
EPOCHS, STEPS_PER_EPOCH, KEPT_EPOCH = 12, 4, 10
SETTINGS = {
    "batch": 2,
    "crops": 1,
    "steps_per_epoch": STEPS_PER_EPOCH,
    "warmup_epochs": 0,
    "learning_rate": 0.01,
    "validate_every": 1,
    "select": "last",  # MODEL is what the last epoch left, so it can be compared to the bit
    "threads": 1,
    "workers": 0,
    "deterministic": True,
}
README = f"""\
A small data set, PREPARED, RUN, MODEL, three exports and masks, as version 0.1.0 of VeloxSeg wrote them, kept so \
that tests can show that later versions still read them.
`make_legacy.py` made all of it with that version's own commands (phantom, prepare, train, export, predict) from \
synthetic data; the networks are preset `{PRESET}` made tiny, as `run_preset.json` says, and a wider one for \
`exports/native`, whose kernels take no fewer than 8 channels (its weights were rounded, and ONNX's \
notes of source lines taken out).
`run/` is the training as it was after {KEPT_EPOCH} of {EPOCHS} epochs, and `expected.safetensors` holds the weights \
that it had after the last one, which the same torch on the same kind of CPU reaches again to the bit.
"""


def veloxseg(*arguments: str) -> None:
    from veloxseg.cli import main

    sys.argv = ["veloxseg", *arguments]  # run.json stores the command
    print("$", *sys.argv, flush=True)
    assert main(arguments) == 0


def train(folder: str, network: dict, **more: object) -> None:
    """Preset s made tiny, and trained by the command line."""
    from veloxseg.model.config import PRESETS

    PRESETS[PRESET] = dataclasses.replace(ORIGINAL[PRESET], **network)
    settings = SETTINGS | more
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    veloxseg("train", "prepared", "-o", folder, "--model", PRESET, "--epochs", str(EPOCHS), *pairs)


def make_run() -> None:
    """The whole training in `whole`; `run` is a copy of it as it was after KEPT_EPOCH."""
    from veloxseg.train.session import Session

    save = Session.save

    def save_and_copy(self: Session, **options: bool) -> None:
        save(self, **options)
        if (self.state.epoch, self.state.step) == (KEPT_EPOCH, 0):
            shutil.copytree(self.run.path, "run")

    Session.save = save_and_copy
    train("whole", NETWORK)
    Session.save = save
    for path in sorted(Path("run/checkpoints").iterdir())[:-1]:  # the older one is not needed to go on
        path.unlink()
    for path in Path("run").iterdir():  # not read by any version; TensorBoard's files hold the computer's name
        if path.name in ("tensorboard", "progress.png") or path.name.startswith("."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    record = json.loads(Path("run/run.json").read_text())
    record["command"] = record["command"].replace("-o whole", "-o run")
    Path("run/run.json").write_text(json.dumps(record, indent=2) + "\n")
    text = {
        "how": "dataclasses.replace(veloxseg.model.config.PRESETS[preset], **network), put in place of the preset",
        "preset": PRESET,
        "network": NETWORK,
        "native_network": NATIVE,
        "epochs": EPOCHS,
        "kept_after_epoch": KEPT_EPOCH,
        "steps_per_epoch": STEPS_PER_EPOCH,
    }
    Path("run_preset.json").write_text(json.dumps(text, indent=2) + "\n")
    shutil.copytree("whole/model", "model")
    shutil.copy("whole/model/model.safetensors", "expected.safetensors")


def round_weights(model: Path) -> None:
    """Three bits after the first, so that the weights for the native kernels compress well."""
    import hashlib

    import numpy as np
    from safetensors.numpy import load_file, save_file

    def rounded(values: np.ndarray) -> np.ndarray:
        mantissa, exponent = np.frexp(values)
        return np.ldexp(np.round(mantissa * 16) / 16, exponent).astype(values.dtype)

    path = model / "model.safetensors"
    save_file({name: rounded(values) for name, values in load_file(path).items()}, path)
    description = json.loads((model / "model.json").read_text())
    description["provenance"]["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (model / "model.json").write_text(json.dumps(description, indent=2) + "\n")


def remove_traces(path: Path) -> None:
    """torch notes for every node by which lines of which files it was made, with their paths on this machine."""
    import onnx

    model = onnx.load(path)
    for node in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        del node.metadata_props[:]
    for function in model.functions:
        for node in (function, *function.node):
            del node.metadata_props[:]
    onnx.save(model, path)


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    os.chdir(HERE)
    os.environ["XDG_CACHE_HOME"] = str(HERE / "cache")
    import veloxseg as package
    from veloxseg.model.config import PRESETS

    assert package.__version__ == "0.1.0", package.__version__
    ORIGINAL.update(PRESETS)
    veloxseg("phantom", "data", "--cases", "3", "--test-cases", "1", "--size", "16", "16", "32")
    veloxseg("prepare", "data", "-o", "prepared", "--patch", "32", "32", "64", "--workers", "1")
    make_run()
    train("wide", NATIVE, fusion="early", teachers=False)  # one stream for both modalities: a smaller file
    round_weights(Path("wide/model"))
    for form, model in (("native", "wide"), ("openvino", "model"), ("onnx", "model")):
        veloxseg("export", "-m", model, "-o", f"exports/{form}", "--format", form)
        if form == "onnx":
            remove_traces(Path("exports/onnx/model.onnx"))
        options = ("--runtime", form, "--threads", "1", "--statistics")
        veloxseg("predict", "-m", f"exports/{form}", "-i", "data/imagesTs", "-o", f"mask/{form}", *options)
    for name in ("whole", "wide", "cache"):
        shutil.rmtree(name, ignore_errors=True)
    Path("README.md").write_text(README)
    check()


def nameless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def check() -> None:
    files = [path for path in Path().rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        for word in (b"/tmp", b"/work", b"/home", b"/root", b"/usr"):
            assert word not in content, f"{word!r} is in {path}"
    with tarfile.open("../v0.1.0.tar.xz", "w:xz", preset=9) as archive:
        archive.add(".", "v0.1.0", filter=nameless)
    size = Path("../v0.1.0.tar.xz").stat().st_size / 2**20
    print(f"v0.1.0.tar.xz: {size:.2f} MB")
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 2**20:.2f} MB")


if __name__ == "__main__":
    main()
