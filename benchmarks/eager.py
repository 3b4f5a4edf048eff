"""How fast the plain network is in eager PyTorch, and what each rewrite gains: `python benchmarks/eager.py`.

The yardstick is one forward pass of MONAI's BasicUNet on the same patch and thread (1 U). The authors' eager forward is
1/27 U and their training step (batch 2, teachers) 1/2 U. Contenders take turns; medians are compared. Each row
undoes one rewrite, of the forward pass or of the training step. One thread computes, and its processor time is
measured, so that others on the machine hardly count. Our training keeps freed memory, which would make the yardstick
faster too; 1 U is without, as everyone has it, and the other is told. Writes benchmarks/eager.json.
"""

import argparse
import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

import plain
import torch
from monai.networks.nets import BasicUNet
from torch import nn

import veloxseg
from veloxseg import machine
from veloxseg.files import write_json
from veloxseg.kernels import calling
from veloxseg.model import encoder, jlc, layers, losses, pwa, sdkt, transformer
from veloxseg.model.losses import sdkt_loss, two_class_loss
from veloxseg.train.objective import TaughtObjective
from veloxseg.train.recipe import Recipe

AUTHORS_FORWARD = 1 / 27
AUTHORS_STEP = 1 / 2


@contextlib.contextmanager
def without_matrices(network: nn.Module) -> Iterator[None]:
    modules = [module for module in network.modules() if isinstance(module, pwa.PairedWindowAttention)]
    kept = [dict(module.named_buffers(recurse=False)) for module in modules]
    for module in modules:
        module.drop_upsampling_matrices()
    yield
    for module, buffers in zip(modules, kept, strict=True):
        for name, buffer in buffers.items():
            setattr(module, name, buffer)


def variants(network: nn.Module) -> dict[str, Callable[[], contextlib.AbstractContextManager[object]]]:
    patch = mock.patch.object
    return {
        "as it is": contextlib.nullcontext,
        "without forcing oneDNN": lambda: patch(layers.Conv3d, "forward", nn.Conv3d.forward),
        "without channels-last": lambda: patch(jlc, "channels_last", lambda x: x.contiguous()),
        "without fused attention": lambda: patch(pwa.WindowAttention, "forward", plain.explicit_attention),
        "without cached position bias": lambda: patch(
            pwa.RelativePositionBias, "forward", pwa.RelativePositionBias.build
        ),
        "without up-sampling matrices": lambda: without_matrices(network),
        "without folded layer norms": lambda: patch(layers.NormLinear, "forward", plain.separate_norm_linear),
        "with PyTorch's instance norm": lambda: patch(layers.InstanceNorm, "forward", plain.plain_group_norm),
    }


@contextlib.contextmanager
def without(name: str, *modules: object) -> Iterator[None]:
    """A kernel of training is not there: the function that asks for it says no."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch.object(module, name, return_value=None))
        yield


def step_variants() -> dict[str, Callable[[], contextlib.AbstractContextManager[object]]]:
    return {
        "step as it is": contextlib.nullcontext,
        "step without our kernels": lambda: without("training_kernels", calling),
        "step without group convolutions": lambda: without("has_branches", jlc),
        "step without feed-forward layers": lambda: without("has_feed_forward", jlc, transformer),
        "step without attention": lambda: without("has_attention", pwa),
        "step without mixers": lambda: without("has_mixing", encoder, sdkt),
        "step without instance norm": lambda: without("has_norm", layers),
        "step without cells": lambda: without("kernels_for", layers),
        "step without two-class loss": lambda: without("kernels_for", losses),
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


class Contenders:
    """The yardstick, the network and its objective, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.basic_unet = BasicUNet(spatial_dims=3, in_channels=2, out_channels=2).eval()
        self.network = veloxseg.VeloxSeg(veloxseg.preset("b")).eval()
        # as `veloxseg train` has it: two classes are trained as one difference of logits
        self.objective = TaughtObjective(veloxseg.preset("b"), Recipe(), two_class_loss, difference=True)
        self.image = torch.randn(2, 2, 96, 96, 96)
        self.label = (torch.rand(2, 96, 96, 96) > 0.95).long()

    def yardstick(self) -> None:
        with torch.inference_mode():
            self.basic_unet(self.image[:1])

    def forward(self) -> None:
        with torch.inference_mode():
            self.network(self.image[:1])

    def step(self) -> None:
        self.objective.zero_grad(set_to_none=True)
        self.objective(self.image, self.label)[0].backward()

    def plain_step(self) -> None:
        self.objective.zero_grad(set_to_none=True)
        sdkt_loss(self.objective.model(self.image), self.image, self.label).total.backward()


def elsewhere(pipe: Connection) -> None:
    """A process in which freed memory goes back to the system, as everyone has it: times what it is asked for."""
    contenders = Contenders()
    while name := pipe.recv():
        pipe.send(seconds(getattr(contenders, name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    pipe, far_end = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=elsewhere, args=(far_end,), daemon=True).start()
    machine.keep_freed_memory()  # as `veloxseg train` does
    ours_here = Contenders()

    def there(name: str) -> float:
        pipe.send(name)
        return float(pipe.recv())

    times: dict[str, list[float]] = {}
    for turn in range(rounds + 1):  # the first turn warms up
        measured = {"yardstick": there("yardstick"), "yardstick, memory kept": seconds(ours_here.yardstick)}
        measured["step with full logits, plain losses"] = seconds(ours_here.plain_step)
        measured["step without kept memory"] = min(there("step") for _ in range(2))
        for name, undo in step_variants().items():
            with undo():
                measured[name] = min(seconds(ours_here.step) for _ in range(2))
        for name, undo in variants(ours_here.network).items():
            with undo():
                ours_here.forward()
                measured[name] = min(seconds(ours_here.forward) for _ in range(3))
        if turn:
            for name, value in measured.items():
                times.setdefault(name, []).append(value)
    pipe.send("")
    unit = statistics.median(times.pop("yardstick"))
    unit_kept = statistics.median(times.pop("yardstick, memory kept"))
    medians = {name: statistics.median(values) for name, values in times.items()}
    steps = {name: value for name, value in medians.items() if name.startswith("step")}
    rows = {name: value for name, value in medians.items() if name not in steps}
    training = steps["step as it is"]
    ours = rows["as it is"]
    speed = AUTHORS_FORWARD * unit / ours
    print(f"1 U = {unit:.2f} s; forward {ours * 1000:.0f} ms = 1/{unit / ours:.0f} U, {speed:.2f} x authors")
    share = training / unit / AUTHORS_STEP
    print(f"training step {training:.3f} s = {training / unit:.3f} U, {share:.2f} of the authors'")
    given_back = steps["step without kept memory"] / unit
    print(f"    freed memory given back in both: {given_back:.3f} U; kept in both: {training / unit_kept:.3f} U")
    for table, first in ((rows, ours), (steps, training)):
        for name, value in table.items():
            print(f"{name:36s} {value * 1000:7.1f} ms   {value / first:5.2f} x as it is")
    write_json(
        Path(__file__).with_suffix(".json"),
        {
            "command": f"python benchmarks/eager.py --rounds {rounds}",
            "seed": 0,
            "machine": machine.describe(),
            "threads": 1,
            "yardstick_seconds": unit,
            "yardstick_seconds_with_memory_kept": unit_kept,
            "forward_seconds": rows,
            "forward_times_authors": speed,
            "training_step_seconds": training,
            "training_step_of_authors": share,
            "training_steps_seconds": steps,
        },
    )


if __name__ == "__main__":
    main()
