"""The paper's recipe is the default, and every setting can be changed by name."""

from dataclasses import replace
from typing import Any

import pytest

from support.tiny_training import plan_of
from veloxseg.errors import ConfigError
from veloxseg.train.recipe import Recipe, choose_modalities, network_settings
from veloxseg.train.settings import parse_overrides


def test_defaults_are_the_papers() -> None:
    recipe = Recipe()
    assert (recipe.learning_rate, recipe.final_learning_rate, recipe.weight_decay) == (2.5e-4, 6e-6, 0.01)
    assert (recipe.epochs, recipe.warmup_epochs, recipe.batch, recipe.crops) == (300, 10, 4, 2)
    assert (recipe.reconstruction_weight, recipe.transfer_weight) == (0.5, 2.0)
    assert (recipe.transfer, recipe.reduction, recipe.dropout) == ("gram", "mean", 0.1)
    assert recipe.deep_supervision
    assert recipe.clip_gradients == 0


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("ema=0.99", "ema", 0.99),
        ("batch=8", "batch", 8),
        ("deep-supervision=no", "deep_supervision", False),
        ("modalities=ct, pet", "modalities", ("ct", "pet")),
        ("fold=none", "fold", None),
        ("fold=3", "fold", 3),
        ("transfer=l1", "transfer", "l1"),
        ("learning_rate=1e-3", "learning_rate", 1e-3),
    ],
)
def test_overrides_are_typed(text: str, key: str, value: Any) -> None:
    assert parse_overrides([text]) == {key: value}
    assert getattr(Recipe(**parse_overrides([text])), key) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=1", "unknown setting 'rate'; choose from .*learning_rate"),
        ("batch=two", "batch is 'two', expected a whole number from 1 to 4096"),
        ("ema=much", "expected a finite number"),
        ("deep_supervision=maybe", "true or false"),
        ("batch", "key=value"),
    ],
)
def test_bad_overrides_say_what_is_valid(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_overrides([text])


@pytest.mark.parametrize(
    "settings",
    [
        {"batch": 3},
        {"ema": 1.0},
        {"transfer": "soft"},
        {"epochs": 0},
        {"max_minutes": -1.0},
        {"learning_rate": 0.0},
        {"precision": "8"},
    ],
)
def test_settings_at_odds_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Recipe(**settings)


def test_stored_settings_come_back() -> None:
    recipe = Recipe(model="s", modalities=("pet",), max_minutes=2.5, fold=1)
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_network_fits_the_plan() -> None:
    plan = plan_of(labels={"background": 0, "liver": 1, "tumour": 2, "unsure": 9}, ignore_label=9)
    name, network = network_settings(Recipe(dropout=0.2), plan)
    assert name == "veloxseg"
    assert (network["in_channels"], network["classes"], network["patch"]) == ((1, 1), 3, plan.patch)
    assert network["attention_dropout"] == network["conv_dropout"] == 0.2
    assert network_settings(Recipe(fusion="early"), plan)[1]["in_channels"] == (2,)
    assert network_settings(Recipe(model="c"), plan)[1]["in_channels"] == (2,)
    assert network_settings(Recipe(model="slim-unetr"), plan)[0] == "slim-unetr"
    with pytest.raises(ConfigError, match=r"preset .*peer"):
        network_settings(Recipe(model="nonsense"), plan)


def test_one_modality_brings_its_own_reference() -> None:
    plan = choose_modalities(plan_of(), ("pet",))
    assert plan.names == ("pet",)
    assert plan.reference == "pet"
    assert choose_modalities(plan_of(), ("pet", "ct")) == plan_of()
    with pytest.raises(ConfigError, match="no modality mr; this data set has ct, pet"):
        choose_modalities(plan_of(), ("mr",))
    assert replace(plan, modalities=plan_of().modalities, reference="ct") == plan_of()


@pytest.mark.parametrize(
    "text",
    ["threads=-5", "seed=-1", "warmup_epochs=nan", "batch=0", "batch=1e9", "epochs=" + "9" * 5000, "learning_rate=inf",
     "weight_decay=-1", "fold=-1", "workers=²", "ema=1", "transfer=gramm", "max_minutes=0", "steps_per_epoch=-3"],
)  # fmt: skip
def test_numbers_out_of_range_are_bad_input(text: str) -> None:
    with pytest.raises(ConfigError, match="expected") as raised:
        Recipe(**parse_overrides([text]))
    assert len(str(raised.value)) < 250
