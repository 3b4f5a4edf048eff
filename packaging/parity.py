"""The kernels of an installed wheel against stored results, by numpy alone, so that it also runs in an emulator.

    python packaging/parity.py FOLDER

FOLDER holds, for each network, `<name>.safetensors` with its weights, the window `in` and the logits `out` that torch
computed in doubles, and `<name>.json` with its configuration (check.py writes them). Prints the instruction sets that
were used, or `none` where this processor has none of them.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from veloxseg.model.config import NetworkConfig
from veloxseg.runtimes.native.library import built_sets
from veloxseg.runtimes.native.program import Program


def main(folder: Path) -> None:
    for instructions in built_sets():
        worst = 0.0
        for path in sorted(folder.glob("*.json")):
            arrays = load_file(path.with_suffix(".safetensors"))
            window, expected = arrays.pop("in"), arrays.pop("out")
            program = Program(NetworkConfig.from_json(json.loads(path.read_text())), arrays, instructions)
            error = np.abs(program(window) - expected).max() / (np.abs(expected).max() + 1)
            worst = max(worst, float(error))
            if not error <= 1e-5:
                raise SystemExit(f"{instructions}: {path.stem} differs by {error:.1e} of its largest logit")
        print(f"{instructions} (largest difference {worst:.1e})")
    if not built_sets():
        print("none")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
