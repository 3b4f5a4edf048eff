"""What `make wheels` built, on processors that are here or emulated: `make test-wheels`.

The wheel for x86-64 is installed into an empty environment without a compiler and predicts a synthetic scan; the mask
equals that of the development install. Its kernels run on this processor, and in qemu as an AVX2 and as an SSE
processor; those for ARM run in qemu's aarch64 with Debian's Python. qemu has no AVX-512, so that set is run only
where the processor has it. The sdist is built without a compiler, and must say what that means.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from runtimes.test_native import VARIANTS, random_network, weights_of, window_of
from veloxseg.image import read

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
DEBIAN = [
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libc6",
    "zlib1g",
    "libexpat1",
    "libssl3",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libgcc-s1",
    "libstdc++6",
    "libsqlite3-0",
    "libuuid1",
]
NAMES = ("b", "c", "groups of 8 and 16", "kernels 1 to 7", "width 8", "width 24")


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """Runs a command with nothing but this environment; its output. A failure shows what it said."""
    done = subprocess.run(
        [str(word) for word in command], env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def wheel(machine: str) -> Path:
    (found,) = DIST.glob(f"*manylinux*{machine}.whl")
    return found


def write_networks(folder: Path) -> None:
    """Weights, windows and expected logits for parity.py."""
    import torch

    from veloxseg.runtimes.graph import inference_form

    folder.mkdir()
    for name in NAMES:
        config = VARIANTS[name]
        difference = config.classes == 2
        network = random_network(config)
        weights = weights_of(network, difference=difference)
        form = inference_form(network, "openvino", difference=difference).double()
        window = window_of(config)
        with torch.inference_mode():
            expected = form(torch.from_numpy(window).double()).numpy().astype(np.float32)
        path = folder / name.replace(" ", "-")
        save_file({**weights, "in": window, "out": expected}, path.with_suffix(".safetensors"))
        path.with_suffix(".json").write_text(json.dumps(config.to_json()))


def write_model(folder: Path) -> None:
    """A scan, and a model that was trained for a step: what it says is of no use, but it is the same everywhere."""
    program, here = BIN / "veloxseg", {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder)}
    size = ("--size", "32", "24", "40", "--cases", "3", "--test-cases", "1")
    run(program, "phantom", "data", *size, cwd=folder, **here)
    run(program, "prepare", "data", "-o", "prepared", "--patch", "32", "32", "64", "--workers", "1", cwd=folder, **here)
    run(program, "train", "prepared", "-o", "run", "--epochs", "1", "--set", "steps_per_epoch=1", cwd=folder, **here)
    run(program, "export", "-m", "run", "-o", "model", "--format", "native", cwd=folder, **here)


def predict(program: Path, folder: Path, into: str) -> np.ndarray:
    words = "predict", "-m", "model", "-i", "data/imagesTs", "-o", into, "--runtime", "native", "--threads", "1"
    run(program, *words, cwd=folder, PATH=str(program.parent), HOME=str(folder))  # no compiler in reach
    (mask,) = (folder / into).glob("*.nii.gz")
    return np.asarray(read(mask).array)


def check_x86(folder: Path, networks: Path) -> None:
    write_model(folder)
    environment = folder / "empty"
    run(sys.executable, "-m", "venv", environment, PATH="")
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel("x86_64"), PATH="", HOME="/root")
    ours, installed = (predict(place / "veloxseg", folder, place.parent.name) for place in (BIN, python.parent))
    if not np.array_equal(ours, installed):
        raise SystemExit("the wheel's mask is not that of the development install")
    print(f"x86-64: installed without a compiler, the mask is equal ({np.count_nonzero(ours)} voxels)")
    script = ROOT / "packaging" / "parity.py"
    print("x86-64, this processor:", run(python, "-I", script, networks, PATH="").strip().replace("\n", ", "))
    if (qemu := shutil.which("qemu-x86_64")) is None:
        print("x86-64, other processors: NOT RUN, qemu-user is not installed")
        return
    for processor, expected in (("Haswell", "avx2 "), ("Nehalem", "none")):
        said = run(qemu, "-cpu", processor, python, "-I", script, networks, PATH="")
        said = "\n".join(line for line in said.splitlines() if "qemu-x86_64: warning" not in line)
        if not said.splitlines()[-1].startswith(expected) or "avx512" in said:
            raise SystemExit(f"as {processor} the wheel uses {said}, expected {expected}")
        print(f"x86-64, emulated {processor}: {said.splitlines()[-1]}")


def download_debian(folder: Path, environment: dict[str, str]) -> None:
    """Packages for ARM, by lists of their own: what apt knows of this machine stays, root is not needed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    places = (f"Dir::State::lists={folder / 'lists'}", f"Dir::Cache={folder / 'cache'}")
    settings = ("APT::Architecture=arm64", "APT::Architectures=arm64", "APT::Sandbox::User=root", *places)
    apt = ("apt-get", *(word for setting in settings for word in ("-o", setting)))
    run(*apt, "update", cwd=folder, **environment)
    run(*apt, "download", *DEBIAN, cwd=folder, **environment)


def check_arm(folder: Path, networks: Path) -> None:
    """Debian's Python for ARM is unpacked, not installed; numpy comes from its own wheel for ARM."""
    if (qemu := shutil.which("qemu-aarch64")) is None or shutil.which("apt-get") is None:
        print("aarch64: NOT RUN, needs qemu-user and Debian's apt-get")
        return
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    download_debian(folder, path)
    for package in folder.glob("*.deb"):
        run("dpkg-deb", "-x", package, folder / "root", **path)
    platforms = [word for glibc in ("2_17", "2_27", "2_28") for word in ("--platform", f"manylinux_{glibc}_aarch64")]
    options = ("--no-deps", "--only-binary", ":all:", "--python-version", "3.11", *platforms, "-d", folder)
    pip = (BIN / "python", "-m", "pip", "download", "-q", "-c", ROOT / "constraints.txt")
    run(*pip, *options, "numpy", "safetensors", **path)
    for file in (*folder.glob("*.whl"), wheel("aarch64")):
        zipfile.ZipFile(file).extractall(folder / "site")
    python = (qemu, "-L", folder / "root", folder / "root/usr/bin/python3.11")
    said = run(*python, ROOT / "packaging" / "parity.py", networks, PYTHONPATH=str(folder / "site"), **path)
    if not said.startswith("neon"):
        raise SystemExit(f"on aarch64 the wheel uses {said}, expected neon")
    print(f"aarch64, emulated: {said.strip()}")


def check_sdist(folder: Path) -> None:
    python = ROOT / ".venv-wheels" / "bin" / "python"
    (sdist,) = DIST.glob("*.tar.gz")
    shutil.unpack_archive(sdist, folder, filter="data")
    (source,) = folder.iterdir()
    said = run(python, "-m", "build", "-n", "-w", "-o", folder / "out", source, PATH=str(python.parent))
    if "without its native kernels: there is no C compiler" not in said:
        raise SystemExit(f"a build without a compiler does not say so:\n{said[-2000:]}")
    print("sdist: without a compiler it builds, and says that another runtime is needed")


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_networks(folder / "networks")
        check_sdist(folder / "sdist")
        check_arm(folder / "arm", folder / "networks")
        check_x86(folder, folder / "networks")


if __name__ == "__main__":
    main()
