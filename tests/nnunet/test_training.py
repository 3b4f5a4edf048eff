"""Inside nnU-Net: its search finds our trainers, they train, resume and predict, and its other tools go on working."""

import json
from pathlib import Path

import pytest

from veloxseg.nnunet.commands import TRAINERS, trainers_folder

# nnU-Net and what it imports warn; the first test also waits for planning and training
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900), pytest.mark.usefixtures("nnunet_folders")]

DDP = Path(__file__).parents[1] / "support" / "nnunet_ddp.py"
SEARCH = """
import sys, torch
operators = torch.library.Library("torchvision", "DEF")  # a torchvision built for CUDA lacks them beside a CPU torch
operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name as search
print(*(search(name).__module__ for name in sys.argv[1:]))
"""
WITHOUT_TORCHVISION = """
import sys
from veloxseg.nnunet.commands import _handing_over
import nnunetv2.run.run_training as module
with _handing_over(module):
    module.recursive_find_trainer_class_by_name("nnUNetTrainerVeloxSeg")
print("torchvision" in sys.modules)
"""
BEST = """
from nnunetv2.evaluation.find_best_configuration import find_best_configuration
models = ({"plans": "nnUNetPlans", "configuration": "3d_fullres", "trainer": "nnUNetTrainerVeloxSeg"},)
if __name__ == "__main__":
    find_best_configuration(901, models, allow_ensembling=False, num_processes=1, folds=(0, 1))
"""


def test_nnunets_own_search_finds_the_trainers(workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("nnUNet_extTrainer", str(trainers_folder()))
    out = workshop.run("-c", SEARCH, *TRAINERS)
    assert out.splitlines()[-1].split() == ["veloxseg.nnunet.trainer"] * 2


def test_our_command_does_not_import_torchvision(workshop) -> None:
    assert workshop.run("-c", WITHOUT_TORCHVISION).splitlines()[-1] == "False"


def trainer(workshop, dataset_json: dict, plans: dict, **attributes):
    """A trainer in this process."""
    import torch

    from veloxseg.nnunet.trainer import nnUNetTrainerVeloxSeg

    tried = type("nnUNetTrainerTried", (nnUNetTrainerVeloxSeg,), {"veloxseg_patch": (32, 32, 64), **attributes})
    made = tried({**plans, "continue_training": False}, "3d_fullres", 0, dataset_json, torch.device("cpu"))
    made.initialize()
    return made


def trainer_of(workshop, kind: str, **attributes):
    return trainer(workshop, workshop.dataset_json(kind), workshop.plans(kind), **attributes)


@pytest.mark.parametrize("teachers", [True, False])
@pytest.mark.parametrize("kind", ["classes", "regions"])
def test_weights_have_the_same_names_with_and_without_deep_supervision(workshop, kind: str, teachers: bool) -> None:
    made = trainer_of(workshop, kind, veloxseg_recipe={"teachers": teachers})
    arguments = (made.plans_manager, made.configuration_manager, 2, made.label_manager.num_segmentation_heads)
    plain = made.build_network_architecture(*arguments, enable_deep_supervision=False)
    taught = made.network.state_dict()
    assert set(plain.state_dict()) == {name for name in taught if not name.startswith("teachers.")}
    assert teachers == any(name.startswith("teachers.") for name in taught)
    plain.load_state_dict(taught)  # strict; the teachers' entries are dropped
    assert all((value == taught[name]).all() for name, value in plain.state_dict().items())


def test_every_parameter_that_is_trained_gets_a_gradient(workshop) -> None:
    """DDP waits for the gradient of each; parameters without one would stop it."""
    import torch

    for recipe in ({}, {"teachers": False}, {"teachers": False, "deep_supervision": False}):
        made = trainer_of(workshop, "regions", veloxseg_recipe=recipe)
        made.set_deep_supervision_enabled(True)
        target = [torch.randint(0, 2, (2, 2, 32, 32, 64), dtype=torch.bool)]
        made.loss(made.network(torch.randn(2, 2, 32, 32, 64)), target).backward()
        lacking = [n for n, p in made.network.named_parameters() if p.requires_grad and p.grad is None]
        assert lacking == []


@pytest.mark.parametrize("kind", ["classes", "regions"])
def test_two_processes_train_as_one(workshop, kind: str, tmp_path: Path) -> None:
    """DDP: their mean gradient is that of the whole batch, and both have the same weights after a step."""
    import torch

    files = [str(workshop.preprocessed(kind) / name) for name in ("nnUNetPlans.json", "dataset.json")]
    workshop.run(str(DDP), *files, json.dumps({"teachers": True}), str(tmp_path))
    one, other, alone = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("rank0", "rank1", "alone"))
    assert one["gradients"].keys() == other["gradients"].keys() == alone["gradients"].keys()
    largest = max(float(whole.abs().max()) for whole in alone["gradients"].values())
    for name, whole in alone["gradients"].items():
        assert torch.equal(one["gradients"][name], other["gradients"][name])
        assert float((one["gradients"][name] - whole).abs().max()) < 1e-6 * largest, name
    assert all(torch.equal(value, other["weights"][name]) for name, value in one["weights"].items())
    assert one["output"].shape[2:] == (32, 32, 64)  # one tensor: deep supervision is off within the wrapper
    kept = torch.load(tmp_path / "checkpoint_final.pth", weights_only=False)["network_weights"]
    assert kept.keys() == one["weights"].keys()  # without the wrapper's prefix


def test_the_short_trainer_is_our_short_recipe(workshop) -> None:
    from veloxseg.nnunet.trainer import nnUNetTrainerVeloxSegShort

    made = trainer_of(workshop, "classes", veloxseg_recipe=nnUNetTrainerVeloxSegShort.veloxseg_recipe)
    assert made.num_epochs * made.num_iterations_per_epoch == 1000
    assert made.configuration_manager.batch_dice
    assert not any(name.startswith("teachers.") for name in made.network.state_dict())


def test_an_ignored_label_does_not_count(workshop) -> None:
    import torch

    dataset = workshop.dataset_json("classes")
    dataset["labels"]["ignore"] = 3
    made = trainer(workshop, dataset, workshop.plans("classes"))
    made.network.eval()
    made.set_deep_supervision_enabled(True)
    outputs = made.network(torch.randn(1, 2, 32, 32, 64))
    assert outputs[0].shape[1] == 3
    target = torch.randint(0, 3, (1, 1, 32, 32, 64)).float()
    target[..., :20] = 3
    before = made.loss(outputs, [target])
    for scores in outputs:
        scores.data[..., :20] += torch.randn_like(scores[..., :20])
    assert torch.allclose(before, made.loss(outputs, [target]), atol=1e-5)


def test_training_goes_on_where_it_stopped(trained) -> None:
    """Fold 0 was trained for two epochs; continued to three, it does the third one only."""
    out = trained.train("classes", 0, "--npz", "--continue", "--set", "epochs=3")
    assert "Epoch 2" in out
    assert "Epoch 0" not in out


def test_find_best_configuration_works(trained, tmp_path) -> None:
    script = tmp_path / "best.py"
    script.write_text(BEST)
    trained.run(str(script))
    found = json.loads((trained.root / "results" / "Dataset901_Classes" / "inference_information.json").read_text())
    assert found["best_model_or_ensemble"]["selected_model_or_models"][0]["trainer"] == "nnUNetTrainerVeloxSeg"
