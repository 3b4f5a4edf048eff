"""The torch runtime: the network itself, eager, on CPU, CUDA or MPS. It is the only runtime that imports torch."""

from pathlib import Path

import torch
from torch import nn

from veloxseg.errors import ConfigError, ModelError
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.runtimes.runtime import first_line
from veloxseg.types import Floats

__all__ = ["TorchRuntime", "open_torch"]


def open_torch(weights: Path, folder: ModelFolder, *, threads: int | None, device: str = "cpu") -> "TorchRuntime":
    return TorchRuntime(load_network(folder), threads=threads, device=device)


class TorchRuntime:
    """A network in evaluation mode as a runtime; training validates through it."""

    windows_at_once = 1

    def __init__(self, network: nn.Module, *, threads: int | None = None, device: str = "cpu") -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            self.device = torch.device(device)
            self.network = network.to(self.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"device {device!r} cannot be used ({first_line(error)}); try cpu") from error
        self.name = "torch" if device == "cpu" else f"torch ({device})"
        self.threads = torch.get_num_threads()

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        training = self.network.training
        self.network.eval()
        try:
            with torch.inference_mode():
                window = torch.tensor(window_1CXYZ, device=self.device)  # a copy: images may be read-only
                return self.network(window).float().cpu().numpy()
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"torch cannot compute the network ({first_line(error)}); does the plan in model.json fit it?"
            ) from error
        finally:
            self.network.train(training)
