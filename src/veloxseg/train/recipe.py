"""The recipe: every setting of a training in one frozen dataclass. The defaults are the paper's.

    AdamW, learning rate 2.5e-4, weight decay 0.01; 10 warm-up epochs, then cosine to 6e-6; 300 epochs;
    batch 4 = 2 volumes × 2 crops; deep supervision; CE + Dice + 0.5 · reconstruction + 2.0 · transfer

A setting is changed by `--set key=value`. All resolved settings are stored in RUN/settings.json.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from veloxseg.errors import ConfigError
from veloxseg.prepare.plan import Plan

__all__ = ["SHORT", "Recipe", "choose_modalities", "network_settings", "parse_overrides"]

FUSIONS = ("auto", "separate", "early")
SELECTIONS = ("best", "last")
PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings by name, as `--set` takes them."""

    model: str = "b"  # a preset of VeloxSeg, or the name of a peer
    fold: int | None = None  # of cross-validation; none: the 6:2:2 split
    seed: int = 0
    # network and data
    modalities: tuple[str, ...] = ()  # names to train on, such as pet or ct,pet; empty: all of the plan
    fusion: str = (
        "auto"  # one stream per modality ("separate"), or all as channels of one ("early", preset C)
    )
    dropout: float = 0.1
    modality_dropout: float = (
        0.0  # probability that a sample loses one modality, so that prediction may lack it
    )
    augmentation: str = "paper"  # "paper": a flip along z; "strong"; "none"
    batch: int = 4  # patches per step, over all processes
    crops: int = 2  # patches in a row from one volume
    steps_per_epoch: int = 0  # 0: as many as take each training volume once
    # optimiser
    epochs: int = 300
    max_minutes: float | None = None  # if set, replaces `epochs`: the schedule is fitted to the time
    learning_rate: float = 2.5e-4
    final_learning_rate: float = 6e-6
    warmup_epochs: float = 10.0
    weight_decay: float = 0.01
    clip_gradients: float = 0.0  # greatest norm of the gradient; 0: not clipped, as in the paper
    ema: float = 0.0  # decay of the moving average of weights, such as 0.99; 0: none
    # objective
    deep_supervision: bool = True
    batch_dice: bool = False  # Dice over all patches of a step, so that false alarms in empty ones count
    teachers: bool = True  # SDKT; peers never have teachers
    transfer: str = "gram"  # "gram", "none", "l1", "affinity", "shared-roi"
    reduction: str = "mean"  # or "sum", the paper's printed formula
    reconstruction_weight: float = 0.5
    transfer_weight: float = 2.0
    # validation and what is kept
    validate_every: int = 5  # epochs; the last one is always validated
    overlap: float = 0.5  # of the sliding window's steps, in validation
    select: str = "best"  # MODEL is the best validated epoch, or the "last" one (honest in cross-validation)
    save_seconds: float = 60.0  # a checkpoint at least this often, and at every validation
    bad_steps: int = 5  # consecutive steps without a finite loss after which training gives up
    # engine
    precision: str = "32-true"
    deterministic: bool = True  # resuming is bit-exact on a CPU, where this costs nothing
    threads: int = 0  # of the CPU; 0: as torch finds
    workers: int = -1  # processes that load patches; -1: none on a CPU, up to 8 beside a GPU

    def __post_init__(self) -> None:
        _check(self)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"modalities": list(self.modalities)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Recipe":
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := value.keys() - known:
            raise ConfigError(
                f"stored settings have unknown {', '.join(sorted(unknown))}; was the run made by another version?"
            )
        return cls(**{**value, "modalities": tuple(value.get("modalities", ()))})


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
    hints = typing.get_type_hints(Recipe)
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ConfigError(f"--set {pair!r} has no '='; write it as key=value")
        if key not in hints:
            raise ConfigError(f"unknown setting {key!r}; choose from {', '.join(sorted(hints))}")
        result[key] = _parse(key, text.strip(), hints[key])
    return result


def _parse(key: str, text: str, kind: Any) -> Any:
    if isinstance(kind, types.UnionType):  # "int | None"
        if text.lower() in ("none", ""):
            return None
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is bool:
        values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in values:
            raise ConfigError(f"{key} is {text!r}; it must be true or false")
        return values[text.lower()]
    try:
        return kind(text)
    except ValueError as error:
        expected = {int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"{key} is {text!r}; it must be {expected}") from error


def _check(recipe: Recipe) -> None:
    choices = {
        "fusion": FUSIONS,
        "select": SELECTIONS,
        "precision": PRECISIONS,
        "reduction": ("mean", "sum"),
        "transfer": ("gram", "none", "l1", "affinity", "shared-roi"),
        "augmentation": ("paper", "strong", "none"),
    }
    for name, valid in choices.items():
        if (value := getattr(recipe, name)) not in valid:
            raise ConfigError(f"{name} is {value!r}; choose from {', '.join(valid)}")
    for name in ("dropout", "modality_dropout", "ema", "overlap"):
        if not 0 <= getattr(recipe, name) < 1:
            raise ConfigError(f"{name} is {getattr(recipe, name)}; it must lie in [0, 1)")
    for name in ("batch", "crops", "epochs", "validate_every", "bad_steps"):
        if getattr(recipe, name) < 1:
            raise ConfigError(f"{name} is {getattr(recipe, name)}; it must be at least 1")
    for name in ("learning_rate", "final_learning_rate"):
        if not getattr(recipe, name) > 0:
            raise ConfigError(f"{name} is {getattr(recipe, name)}; it must be positive")
    if recipe.max_minutes is not None and not recipe.max_minutes > 0:
        raise ConfigError(f"max_minutes is {recipe.max_minutes}; it must be positive")
    if recipe.batch % recipe.crops:
        raise ConfigError(
            f"batch {recipe.batch} is no multiple of {recipe.crops} crops per volume; set crops=1 or another batch"
        )


def choose_modalities(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The plan of a network that sees only the modalities `names`, in the plan's order; empty: all."""
    if not names:
        return plan
    if unknown := [name for name in names if name not in plan.names]:
        raise ConfigError(
            f"there is no modality {', '.join(unknown)}; this data set has {', '.join(plan.names)}"
        )
    kept = tuple(modality for modality in plan.modalities if modality.name in names)
    reference = plan.reference if plan.reference in names else kept[0].name
    return dataclasses.replace(plan, modalities=kept, reference=reference)


def network_settings(recipe: Recipe, plan: Plan) -> tuple[str, dict[str, Any]]:
    """Architecture and settings for `networks.build_network`: the preset, fitted to the data."""
    from veloxseg.model.config import PRESETS
    from veloxseg.peers.registry import PEERS

    count = len(plan.names)
    preset = PRESETS.get(recipe.model.lower())
    if preset is None and recipe.model not in PEERS:
        raise ConfigError(
            f"unknown model {recipe.model!r}; choose a preset ({', '.join(PRESETS)}) or a peer ({', '.join(PEERS)})"
        )
    early = recipe.fusion == "early" or (
        recipe.fusion == "auto" and preset is not None and preset.modalities == 1
    )
    sizes: dict[str, Any] = {
        "in_channels": (count,) if early else (1,) * count,
        "classes": len(plan.outputs),
        "patch": plan.patch,
    }
    if preset is None:
        return recipe.model, sizes
    rates: dict[str, Any] = dict.fromkeys(
        ("attention_dropout", "projection_dropout", "conv_dropout"), recipe.dropout
    )
    config = dataclasses.replace(preset, **sizes, windows=plan.windows, **rates)
    return "veloxseg", config.to_json()
