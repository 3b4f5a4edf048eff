"""Builds the kernels of `veloxseg.runtimes.native` with the C compiler that is there. Without one, all else is installed:
prediction then runs in OpenVINO."""

import os
import platform
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/veloxseg/runtimes/native")
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
]
PROCESSOR = {"x86_64": ["-mavx2", "-mfma"], "AMD64": ["-mavx2", "-mfma"]}


class Kernels(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / FOLDER
        library = folder / "_kernels.so"
        library.unlink(missing_ok=True)
        if platform.machine() not in PROCESSOR:
            return  # elsewhere the kernels were never measured; OpenVINO is there
        compiler = next(filter(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang")), None)
        if compiler is None:
            self.app.display_warning("no C compiler: veloxseg is installed without its native kernels")
            return
        flags = [*FLAGS, *PROCESSOR[platform.machine()]]
        sources = runpy.run_path(str(folder / "library.py"))["source_hash"]()
        command = [
            compiler,
            f'-DSOURCES="{sources}"',
            *flags,
            *map(str, sorted(folder.glob("*.c"))),
            "-o",
            str(library),
            "-lm",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            self.app.display_warning(
                f"veloxseg is installed without its native kernels; {compiler} says:\n{done.stderr}"
            )
            return
        build_data["artifacts"].append(str(FOLDER / library.name))
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{system}"  # loaded by ctypes: any Python will do
