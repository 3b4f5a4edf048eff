"""The recipe: every setting of a training in one frozen dataclass. The defaults are the paper's.

    AdamW, learning rate 2.5e-4, weight decay 0.01; 10 warm-up epochs, then cosine to 6e-6; 300 epochs;
    batch 4 = 2 volumes × 2 crops; deep supervision; CE + Dice + 0.5 · reconstruction + 2.0 · transfer

A setting is changed by `--set key=value`. All resolved settings are stored in RUN/settings.json.
"""

import dataclasses
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from veloxseg.errors import ConfigError, shown
from veloxseg.prepare.plan import Plan
from veloxseg.schema import Count, OneOf, Range, Share, build, parse, settle

__all__ = ["SHORT", "Recipe", "choose_modalities", "network_settings", "parse_overrides"]

Number = Annotated[int, Range(0, 1_000_000)]
Few = Annotated[int, Range(1, 4096)]
Rate = Annotated[float, Range(1e-12, 1e3)]
Weight = Annotated[float, Range(0, 1e6)]
Minutes = Annotated[float, Range(1e-6, 1e6)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings by name, as `--set` takes them."""

    model: str = "b"  # a preset of VeloxSeg, or the name of a peer
    fold: Number | None = None  # the fold of cross-validation; without one the 6:2:2 split is used
    seed: Annotated[int, Range(0, 2**63 - 1)] = 0
    # network and data
    modalities: tuple[str, ...] = ()  # the names to train on, such as pet or ct,pet; with none, all of the plan
    # one stream per modality ("separate"), or all as channels of one ("early", preset C)
    fusion: Annotated[str, OneOf("auto", "separate", "early")] = "auto"
    dropout: Share = 0.1
    modality_dropout: Share = 0.0  # probability that a sample loses one modality, so that prediction may lack it
    # "paper": a flip along z; "strong"; "none"
    augmentation: Annotated[str, OneOf("paper", "strong", "none")] = "paper"
    batch: Few = 4  # patches per step, over all processes
    crops: Few = 2  # patches in a row from one volume
    steps_per_epoch: Number = 0  # 0 stands for as many as take each training volume once
    # optimiser
    epochs: Count = 300
    max_minutes: Minutes | None = None  # if set, replaces `epochs`: the schedule is fitted to the time
    learning_rate: Rate = 2.5e-4
    final_learning_rate: Rate = 6e-6
    warmup_epochs: Weight = 10.0
    weight_decay: Weight = 0.01
    clip_gradients: Weight = 0.0  # the greatest norm of the gradient; with 0 it is not clipped, as in the paper
    ema: Share = 0.0  # the decay of a moving average of the weights, such as 0.99; with 0 there is none
    # objective
    loss: str = "ce_dice"  # a name of model.losses.LOSSES
    deep_supervision: bool = True
    batch_dice: bool = False  # Dice over all patches of a step, so that false alarms in empty ones count
    teachers: bool = True  # SDKT; peers never have teachers
    transfer: Annotated[str, OneOf("gram", "none", "l1", "affinity", "shared-roi")] = "gram"
    reduction: Annotated[str, OneOf("mean", "sum")] = "mean"  # "sum" is the paper's printed formula
    reconstruction_weight: Weight = 0.5
    transfer_weight: Weight = 2.0
    # validation and what is kept
    validate_every: Count = 5  # epochs; the last one is always validated
    overlap: Share = 0.5  # the part that neighbouring windows have in common, in validation
    # MODEL is the best validated epoch, or the "last" one (honest in cross-validation)
    select: Annotated[str, OneOf("best", "last")] = "best"
    save_seconds: Weight = 60.0  # a checkpoint at least this often, and at every validation
    bad_steps: Count = 5  # consecutive steps without a finite loss after which training gives up
    # engine
    precision: Annotated[str, OneOf("32-true", "bf16-mixed")] = "32-true"
    deterministic: bool = True  # resuming is bit-exact on a CPU, where this costs nothing
    threads: Annotated[int, Range(0, 1024)] = 0  # threads of the CPU; with 0 torch chooses
    # processes that load patches; -1 stands for none on a CPU and up to 8 beside a GPU
    workers: Annotated[int, Range(-1, 256)] = -1

    def __post_init__(self) -> None:
        settle(self)
        if self.batch % self.crops:
            raise ConfigError(
                f"batch {self.batch} is no multiple of {self.crops} crops per volume; set crops=1 or another batch"
            )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"modalities": list(self.modalities)}

    @classmethod
    def from_json(cls, value: Any, where: str = "settings.json") -> "Recipe":
        return build(cls, value, where, ConfigError, "was the run made by another version?")


# What differs in a training of minutes on a CPU (--max-minutes; experiments/README.md). A rate 16 times the paper's,
# as there are few steps; no teachers and no deep supervision, as the steps that they cost bring more than they do; no
# dropout, as nothing is learnt by heart in minutes; Dice over both patches of a step, for smaller false alarms.
SHORT: dict[str, Any] = {
    "learning_rate": 4e-3,
    "final_learning_rate": 2e-5,
    "batch": 2,
    "teachers": False,
    "deep_supervision": False,
    "dropout": 0.0,
    "batch_dice": True,
}


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """`key=value` texts as typed settings.

    >>> parse_overrides(["ema=0.99", "modalities=ct,pet"])
    {'ema': 0.99, 'modalities': ('ct', 'pet')}
    """
    hints = typing.get_type_hints(Recipe, include_extras=True)
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ConfigError(f"--set {shown(pair)!r} has no '='; write it as key=value")
        if key not in hints:
            raise ConfigError(f"unknown setting {shown(key)!r}; choose from {', '.join(sorted(hints))}")
        result[key] = parse(hints[key], text, key)
    return result


def choose_modalities(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan of a network that sees only the modalities `names`, in the plan's order; empty: all."""
    if not names:
        return plan
    if unknown := [name for name in names if name not in plan.names]:
        raise ConfigError(f"there is no modality {', '.join(unknown)}; this data set has {', '.join(plan.names)}")
    kept = tuple(modality for modality in plan.modalities if modality.name in names)
    reference = plan.reference if plan.reference in names else kept[0].name
    return dataclasses.replace(plan, modalities=kept, reference=reference)


def network_settings(recipe: Recipe, plan: Plan) -> tuple[str, dict[str, Any]]:
    """Architecture and settings for `model_folder.build_network`: the preset, fitted to the data."""
    from veloxseg.model.config import PRESETS
    from veloxseg.peers.registry import PEERS

    count = len(plan.names)
    preset = PRESETS.get(recipe.model.lower())
    if preset is None and recipe.model not in PEERS:
        raise ConfigError(
            f"unknown model {recipe.model!r}; choose a preset ({', '.join(PRESETS)}) or a peer ({', '.join(PEERS)})"
        )
    early = recipe.fusion == "early" or (recipe.fusion == "auto" and preset is not None and preset.modalities == 1)
    sizes: dict[str, Any] = {
        "in_channels": (count,) if early else (1,) * count,
        "classes": len(plan.outputs),
        "patch": plan.patch,
    }
    if preset is None:
        return recipe.model, sizes
    rates: dict[str, Any] = dict.fromkeys(("attention_dropout", "projection_dropout", "conv_dropout"), recipe.dropout)
    config = dataclasses.replace(preset, **sizes, windows=plan.windows, **rates)
    return "veloxseg", config.to_json()
