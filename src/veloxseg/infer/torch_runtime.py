"""The torch runtime: the network itself, eager, on CPU, CUDA or MPS. The only runtime that imports torch."""

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from veloxseg.errors import ConfigError

__all__ = ["TorchRuntime"]

Floats = npt.NDArray[np.float32]


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
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device {device!r} cannot be used ({reason}); try cpu") from error
        self.name = "torch" if device == "cpu" else f"torch ({device})"
        self.threads = torch.get_num_threads()

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        training = self.network.training
        self.network.eval()
        try:
            with torch.inference_mode():
                window = torch.tensor(window_1CXYZ, device=self.device)  # a copy: images may be read-only
                logits = self.network(window)
        finally:
            self.network.train(training)
        result: Floats = logits.float().cpu().numpy()
        return result
