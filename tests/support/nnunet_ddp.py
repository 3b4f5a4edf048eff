"""Two processes of one training inside nnU-Net: `python nnunet_ddp.py PLANS DATASET RECIPE OUT`, over gloo on a CPU.

nnU-Net starts several processes on CUDA alone: it says "nccl" and device ids of GPUs. Here these two are replaced; all
else (batch per process, wrapper, loss, deep supervision, checkpoint) is as nnU-Net and our trainer have it. Each
process stores what it has found.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

WORLD = 2
PATCH = (32, 32, 64)


def build_trainer(plans: Path, dataset: Path, recipe: str) -> Any:
    import nnunetv2.training.nnUNetTrainer.nnUNetTrainer as module

    from veloxseg.nnunet.trainer import nnUNetTrainerVeloxSeg

    module.DDP = lambda network, device_ids: torch.nn.parallel.DistributedDataParallel(network)
    settings = {**json.loads(recipe), "dropout": 0.0}  # each process would draw its own
    tried = type("nnUNetTrainerTried", (nnUNetTrainerVeloxSeg,), {"veloxseg_patch": PATCH, "veloxseg_recipe": settings})
    described = {**json.loads(plans.read_text()), "continue_training": False}
    trainer = tried(described, "3d_fullres", 0, json.loads(dataset.read_text()), torch.device("cpu"))
    trainer.device, trainer.grad_scaler = torch.device("cpu"), None  # nnU-Net takes DDP for CUDA
    torch.set_default_dtype(torch.float64)  # a norm over two voxels makes much of single precision's rounding
    torch.manual_seed(0)
    trainer.initialize()
    trainer.set_deep_supervision_enabled(True)
    trainer.network.train()
    return trainer


def batch_of(trainer: Any, part: slice) -> dict[str, Any]:
    """Some samples of one random batch that all processes know."""
    random = torch.Generator().manual_seed(1)
    outputs, regions = trainer.label_manager.num_segmentation_heads, trainer.label_manager.has_regions
    image = torch.randn(WORLD, 2, *PATCH, generator=random)
    shape = (WORLD, outputs, *PATCH) if regions else (WORLD, 1, *PATCH)
    label = torch.randint(0, 2 if regions else outputs, shape, generator=random)
    return {"data": image[part], "target": [(label.bool() if regions else label.float())[part]]}


def gradients(trainer: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    trainer.loss(trainer.network(batch["data"]), batch["target"]).backward()
    named = trainer.network.named_parameters()
    return {name.removeprefix("module."): value.grad.clone() for name, value in named if value.grad is not None}


def work(rank: int, plans: Path, dataset: Path, recipe: str, out: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=rank, world_size=WORLD)
    trainer = build_trainer(plans, dataset, recipe)
    assert (trainer.is_ddp, trainer.batch_size) == (True, 1)
    own = batch_of(trainer, slice(rank, rank + 1))
    found: dict[str, Any] = {"gradients": gradients(trainer, own)}
    trainer.optimizer.zero_grad()
    trainer.train_step(own)
    trainer.validation_step(own)
    found["weights"] = trainer.network.module.state_dict()
    trainer.save_checkpoint(str(out / "checkpoint_final.pth"))
    trainer.set_deep_supervision_enabled(False)
    with torch.inference_mode():
        found["output"] = trainer.network.module.eval()(own["data"])
    torch.save(found, out / f"rank{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    arguments = (Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    multiprocessing.spawn(work, arguments, nprocs=WORLD)
    torch.set_num_threads(1)
    alone = build_trainer(*arguments[:3])
    torch.save({"gradients": gradients(alone, batch_of(alone, slice(None)))}, arguments[3] / "alone.pt")
