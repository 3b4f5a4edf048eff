"""Builds the kernels of `veloxseg.runtimes.native` and of `veloxseg.kernels`, one library of each per instruction set.

Without a compiler all else is installed, and installing says what then computes. `CC` names another compiler, also one
that compiles for another machine: `CC=aarch64-linux-gnu-gcc` makes a wheel for ARM (`make wheels`).
"""

import os
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/veloxseg/runtimes/native")
TRAINING = Path("src/veloxseg/kernels")
FLAGS = ["-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden", "-fPIC", "-shared"]
WITHOUT = (
    "veloxseg is installed without its native kernels: {reason}. Prediction then needs another runtime: "
    "pip install openvino, or onnxruntime with a model that was exported to ONNX, or torch. The published wheels "
    "carry the kernels and need no compiler."
)


class Kernels(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / FOLDER
        library = runpy.run_path(str(folder / "library.py"))
        training = runpy.run_path(str(Path(self.root) / TRAINING / "library.py"))
        for path in [*folder.glob("_kernels*.so"), *training["FOLDER"].glob("_training*.so")]:
            path.unlink()
        compiler = next(filter(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang")), None)
        if compiler is None:
            self.app.display_warning(WITHOUT.format(reason="there is no C compiler"))
            return
        target = _output([compiler, "-dumpmachine"]).strip()  # such as x86_64-linux-gnu
        machine = target.partition("-")[0]
        sets = {name: one for name, one in library["SETS"].items() if machine in one.machines}
        reason = f"they are not written for {machine}" if not sets else ""
        built = []
        for name, one in sets.items():
            for sources, path in ((library, one.path), (training, training["library_path"](name))):
                reason = self._build(compiler, sources, one.flags, path) or reason
                built += [path] if path.is_file() else []
        if not built:
            self.app.display_warning(WITHOUT.format(reason=reason))
            return
        if reason:  # an old compiler may lack AVX-512
            self.app.display_warning(f"veloxseg is installed without some of its native kernels; {reason}")
        build_data["artifacts"] += [str(path.relative_to(self.root)) for path in built]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(target, machine)}"  # loaded by ctypes: any Python will do

    def _build(self, compiler: str, library: dict[str, Any], flags: tuple[str, ...], into: Path) -> str:
        """Compiles the C files beside a library.py for one instruction set; what the compiler said if it could not."""
        files = [str(path) for path in sorted(library["FOLDER"].glob("*.c"))]
        command = [compiler, f'-DSOURCES="{library["source_hash"]()}"', *FLAGS, *flags, *files, "-o", str(into), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        return f"{compiler} says:\n{done.stderr}" if done.returncode else ""


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _platform(target: str, machine: str) -> str:
    """The wheel's tag: of this machine, or of the one that is compiled for."""
    here = sysconfig.get_platform()
    if "linux" in target and not here.endswith(machine):
        here = f"linux-{machine}"
    return here.replace("-", "_").replace(".", "_")
