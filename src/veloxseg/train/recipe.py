"""The recipe: every setting of a training in one frozen dataclass. The defaults are the paper's.

    AdamW, learning rate 2.5e-4, weight decay 0.01; 10 warm-up epochs, then cosine to 6e-6; 300 epochs;
    batch 4 = 2 volumes × 2 crops; deep supervision; CE + Dice + 0.5 · reconstruction + 2.0 · transfer

A setting is changed by `--set key=value`; `settings.py` knows all names, those of the network too. All resolved
settings are stored in RUN/settings.json.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.model.config import PRESETS, NetworkConfig, windows_for
from veloxseg.peers.registry import FOUNDATION, PEERS
from veloxseg.prepare.plan import Plan
from veloxseg.schema import Count, OneOf, Range, Share, build, build_some, field_kinds, settle

__all__ = ["SHORT", "Recipe", "choose_modalities", "network_settings", "trained_plan"]

Number = Annotated[int, Range(0, 1_000_000)]
Few = Annotated[int, Range(1, 4096)]
Rate = Annotated[float, Range(1e-12, 1e3)]
Weight = Annotated[float, Range(0, 1e6)]
Minutes = Annotated[float, Range(1e-6, 1e6)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings by name, as `--set` takes them."""

    model: str = "b"
    """A preset of VeloxSeg (b, s, l, b+, c), or the name of a peer such as slim-unetr."""
    init: str = ""
    """A MODEL or RUN whose weights the network starts from where they fit; with none, random ones."""
    fold: Number | None = None
    """The fold of cross-validation; without one the 6:2:2 split is used."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Of first weights, patches and dropout; the same seed gives the same training."""
    modalities: tuple[str, ...] = ()
    """The names to train on, such as pet or ct,pet; with none, all of the plan."""
    fusion: Annotated[str, OneOf("auto", "separate", "early")] = "auto"
    """One stream per modality, or all as channels of one; auto is early for preset c and separate for the others."""
    dropout: Share = 0.1
    """Dropout of attention weights, projections and feed-forward layers of VeloxSeg."""
    modality_dropout: Share = 0.0
    """Probability that a sample loses one modality, so that prediction may lack it."""
    augmentation: Annotated[str, OneOf("paper", "strong", "zoom", "none")] = "paper"
    """The paper's flip along z; strong: all flips, turns, intensities; zoom: other sizes, too."""
    transplant: Share = 0.0
    """Probability that a patch gets the lesions of another case; tried with MRI, not for organs, nor with PET."""
    mirror: bool = False
    """Whether the MODEL asks for the mean over eight mirror images: eight times the work of a prediction."""
    batch: Few = 4
    """Patches per step, over all processes."""
    crops: Few = 2
    """Patches in a row from one volume."""
    steps_per_epoch: Number = 0
    """0 stands for as many as take each training volume once."""
    epochs: Count = 300
    """Length of the training and of its schedule."""
    max_minutes: Minutes | None = None
    """If set, replaces `epochs`: the schedule is fitted to the time, and other defaults hold (below)."""
    optimiser: Annotated[str, OneOf("adamw", "muon")] = "adamw"
    """The paper's AdamW; or muon, which needs about half as many steps and a fifth more time for each."""
    learning_rate: Rate = 2.5e-4
    """The highest rate, reached after the warm-up."""
    final_learning_rate: Rate = 6e-6
    """Where the cosine ends."""
    warmup_epochs: Weight = 10.0
    """Epochs in which the rate rises from nearly 0."""
    weight_decay: Weight = 0.01
    """The part of the rate by which weights shrink in a step."""
    clip_gradients: Weight = 0.0
    """The greatest norm of the gradient; with 0 it is not clipped, as in the paper."""
    ema: Share = 0.0
    """The decay of a moving average of the weights, such as 0.99; with 0 there is none."""
    loss: str = "ce_dice"
    """The loss of segmentation, a name of `LOSSES` in `model/losses.py`."""
    deep_supervision: bool = True
    """Whether the outputs of all four stages are scored, as in the paper, or the finest alone."""
    batch_dice: bool = False
    """Dice over all patches of a step, so that false alarms in empty ones count."""
    teachers: bool = True
    """The texture teachers (SDKT); peers and networks without attention have none."""
    transfer: Annotated[str, OneOf("gram", "none", "l1", "affinity", "shared-roi")] = "gram"
    """How the teachers' features guide the student's; all but gram are the paper's comparisons."""
    reduction: Annotated[str, OneOf("mean", "sum")] = "mean"
    """Of the transfer term; sum is the paper's printed formula, mean gave its figures."""
    reconstruction_weight: Weight = 0.5
    """Of the teachers' reconstruction in the loss."""
    transfer_weight: Weight = 2.0
    """Of the transfer term in the loss."""
    validate_every: Count = 5
    """Epochs between validations; the last one is always validated."""
    overlap: Share = 0.5
    """The part that neighbouring windows have in common, in validation."""
    select: Annotated[str, OneOf("best", "last")] = "best"
    """MODEL is the best validated epoch, or the last one (honest in cross-validation)."""
    save_seconds: Weight = 60.0
    """A checkpoint is saved at least this often, and at every validation."""
    bad_steps: Count = 5
    """Consecutive steps without a finite loss after which training gives up."""
    precision: Annotated[str, OneOf("32-true", "bf16-mixed")] = "32-true"
    """Of the computation; losses are always computed in float32."""
    deterministic: bool = True
    """Resuming is bit-exact on a CPU, where this costs nothing."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Threads of the CPU; with 0 torch chooses."""
    workers: Annotated[int, Range(-1, 256)] = -1
    """Processes that load patches; -1 stands for none on a CPU and up to 8 beside a GPU."""
    network: dict[str, Any] = field(default_factory=dict)
    """Settings of the network that differ from the preset's, by their own names."""

    def __post_init__(self) -> None:
        settle(self)
        network = build_some(field_kinds(NetworkConfig), self.network, "", "setting of the network")
        object.__setattr__(self, "network", network)
        if self.batch % self.crops:
            raise ConfigError(
                f"batch {self.batch} is no multiple of {self.crops} crops per volume; set crops=1 or another batch"
            )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"modalities": list(self.modalities)}

    @classmethod
    def from_json(cls, value: Any, where: str = "settings.json") -> "Recipe":
        return build(cls, value, where, ConfigError, "was the run made by another version?")


# What differs in a training of minutes on a CPU (--max-minutes; experiments/recipe.md). Muon, which learns in half the
# steps; a rate 16 times the paper's, as there are few; weights that shrink, lest few cases be learnt by heart; no
# teachers and no deep supervision, as the steps that they cost bring more than they do; no dropout, as it brought
# nothing in minutes; the patches of a step from different cases, as they teach more than two of one; Dice over all of
# them, for smaller false alarms; the last epoch, as the rate ends near 0 and a choice by few validation cases is
# chance.
SHORT: dict[str, Any] = {
    "optimiser": "muon",
    "weight_decay": 0.3,
    "learning_rate": 4e-3,
    "final_learning_rate": 2e-5,
    "batch": 2,
    "crops": 1,
    "teachers": False,
    "deep_supervision": False,
    "dropout": 0.0,
    "batch_dice": True,
    "select": "last",
}


def choose_modalities(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan of a network that sees only the modalities `names`, in the plan's order; empty: all."""
    if not names:
        return plan
    if unknown := [name for name in names if name not in plan.names]:
        raise ConfigError(f"there is no modality {', '.join(unknown)}; this data set has {', '.join(plan.names)}")
    kept = tuple(modality for modality in plan.modalities if modality.name in names)
    reference = plan.reference if plan.reference in names else kept[0].name
    return dataclasses.replace(plan, modalities=kept, reference=reference)


def trained_plan(plan: Plan, recipe: Recipe) -> Plan:
    """The plan of the network that the recipe asks for: its modalities, mirroring, and its own patch if it has one."""
    plan = dataclasses.replace(choose_modalities(plan, recipe.modalities), mirror=recipe.mirror)
    patch = recipe.network.get("patch", plan.patch)
    return plan if patch == plan.patch else dataclasses.replace(plan, patch=patch, windows=windows_for(patch))


def network_settings(recipe: Recipe, plan: Plan) -> tuple[str, dict[str, Any]]:
    """Architecture and settings for `model_folder.build_network`: the preset, fitted to the data, and what was set."""
    count = len(plan.names)
    preset = PRESETS.get(recipe.model.lower())
    known = [*PEERS, *FOUNDATION]
    if preset is None and recipe.model not in known:
        raise ConfigError(
            f"unknown model {shown(recipe.model)!r}{did_you_mean(recipe.model, [*PRESETS, *known])}; "
            f"choose a preset ({', '.join(PRESETS)}) or a peer ({', '.join(known)})"
        )
    if recipe.model in FOUNDATION and not recipe.init:
        source = FOUNDATION[recipe.model].weights
        raise ConfigError(f"{recipe.model} starts from weights that are not ours: give --init FOLDER, from {source}")
    early = recipe.fusion == "early" or (recipe.fusion == "auto" and preset is not None and preset.modalities == 1)
    sizes: dict[str, Any] = {
        "in_channels": (count,) if early else (1,) * count,
        "classes": len(plan.outputs),
        "patch": plan.patch,
    }
    own = {name: value for name, value in recipe.network.items() if name != "patch"}
    if preset is None:
        if own:
            raise ConfigError(
                f"{recipe.model} has no setting {next(iter(own))}, which is one of VeloxSeg; leave it out, or "
                f"choose a preset ({', '.join(PRESETS)})"
            )
        return recipe.model, sizes
    rates = dict.fromkeys(("attention_dropout", "projection_dropout", "conv_dropout"), recipe.dropout)
    config = dataclasses.replace(preset, **(sizes | {"windows": plan.windows} | rates | own))
    _check_against_data(config, plan)
    return "veloxseg", config.to_json()


def _check_against_data(config: NetworkConfig, plan: Plan) -> None:
    if sum(config.in_channels) != len(plan.names):
        raise ConfigError(
            f"in_channels {config.in_channels} make {sum(config.in_channels)} channels, the data has "
            f"{len(plan.names)} ({', '.join(plan.names)}); let them add up to {len(plan.names)}"
        )
    if config.classes != len(plan.outputs):
        raise ConfigError(
            f"classes is {config.classes}, the prepared labels make {len(plan.outputs)} ({', '.join(plan.outputs)}); "
            "leave it out, or prepare with --merge or --regions"
        )
