"""How fast the plain network is in eager PyTorch, and what each rewrite gains: `python benchmarks/eager.py`.

The yardstick is one forward pass of MONAI's BasicUNet on the same patch and thread (1 U). The authors' eager forward is
1/27 U and their training step (batch 2, teachers) 1/2 U. Contenders take turns; medians are compared. Each row
undoes one rewrite. Writes benchmarks/eager.json.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import plain
import torch
from monai.networks.nets import BasicUNet
from torch import nn

import veloxseg
from veloxseg import machine
from veloxseg.files import write_json
from veloxseg.model import jlc, layers, pwa
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


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yardstick = BasicUNet(spatial_dims=3, in_channels=2, out_channels=2).eval()
    network = veloxseg.VeloxSeg(veloxseg.preset("b")).eval()
    # as `veloxseg train` has it: two classes are trained as one difference of logits
    objective = TaughtObjective(veloxseg.preset("b"), Recipe(), two_class_loss, difference=True)
    image = torch.randn(2, 2, 96, 96, 96)
    label = (torch.rand(2, 96, 96, 96) > 0.95).long()

    def forward(net: nn.Module) -> None:
        with torch.inference_mode():
            net(image[:1])

    def step() -> None:
        objective.zero_grad(set_to_none=True)
        objective(image, label)[0].backward()

    def plain_step() -> None:
        objective.zero_grad(set_to_none=True)
        sdkt_loss(objective.model(image), image, label).total.backward()

    times: dict[str, list[float]] = {"yardstick": [], "training step": [], "training step, plain losses": []}
    for turn in range(rounds + 1):  # the first turn warms up
        measured = {"yardstick": seconds(lambda: forward(yardstick)), "training step": seconds(step)}
        measured["training step, plain losses"] = seconds(plain_step)
        for name, undo in variants(network).items():
            with undo():
                forward(network)
                measured[name] = min(seconds(lambda: forward(network)) for _ in range(3))
        if turn:
            for name, value in measured.items():
                times.setdefault(name, []).append(value)
    unit = statistics.median(times.pop("yardstick"))
    training = statistics.median(times.pop("training step"))
    plain_training = statistics.median(times.pop("training step, plain losses"))
    rows = {name: statistics.median(values) for name, values in times.items()}
    ours = rows["as it is"]
    speed = AUTHORS_FORWARD * unit / ours
    print(f"1 U = {unit:.2f} s; forward {ours * 1000:.0f} ms = 1/{unit / ours:.0f} U, {speed:.2f} x authors")
    share = training / unit / AUTHORS_STEP
    print(f"training step {training:.2f} s = {training / unit:.2f} U, {share:.2f} of the authors'")
    print(f"    with full logits and plain losses {plain_training / unit / AUTHORS_STEP:.2f}")
    for name, value in rows.items():
        print(f"{name:32s} {value * 1000:7.1f} ms   {value / ours:5.2f} x as it is")
    write_json(
        Path(__file__).with_suffix(".json"),
        {
            "command": f"python benchmarks/eager.py --rounds {rounds}",
            "seed": 0,
            "machine": machine.describe(),
            "threads": 1,
            "yardstick_seconds": unit,
            "forward_seconds": rows,
            "forward_times_authors": speed,
            "training_step_seconds": training,
            "training_step_of_authors": share,
            "training_step_with_plain_losses_of_authors": plain_training / unit / AUTHORS_STEP,
        },
    )


if __name__ == "__main__":
    main()
