"""Checkpoints as version 0.1.0 wrote them: the checksum covers names and values, but neither types nor sizes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


def write_old_checkpoint(path: Path, state: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    text = json.dumps(state)
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    save_file(dict(tensors), path, {"state": text, "sha256": digest.hexdigest()})
