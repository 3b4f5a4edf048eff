"""Settings by name: what `--set`, a config file and a run's own record may change, of the recipe and of the network.

All names are fields of `Recipe` or of `NetworkConfig`, no name of both; a field's type says what is valid and the text
below it what it means; `settings_page.py` makes docs/settings.md from both.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.files import read_json
from veloxseg.model.config import NetworkConfig
from veloxseg.schema import build_some, field_kinds, parse
from veloxseg.train.recipe import Recipe

__all__ = [
    "NETWORK",
    "RECIPE",
    "by_name",
    "check_settings",
    "make_recipe",
    "parse_overrides",
    "read_config",
    "read_toml",
    "recorded_data",
    "setting_text",
    "train_command",
]

NETWORK = field_kinds(NetworkConfig)
RECIPE = {name: kind for name, kind in field_kinds(Recipe).items() if name != "network"}
KINDS: dict[str, Any] = {**RECIPE, **NETWORK}
MOST_BYTES = 1 << 20  # of a config file


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """`key=value` texts as typed settings.

    >>> parse_overrides(["ema=0.99", "modalities=ct,pet", "group_sizes=4,8,8,16"])
    {'ema': 0.99, 'modalities': ('ct', 'pet'), 'group_sizes': (4, 8, 8, 16)}
    """
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ConfigError(f"--set {shown(pair)!r} has no '='; write it as key=value")
        if key not in KINDS:
            raise ConfigError(
                f"unknown setting {shown(key)!r}{did_you_mean(key, KINDS)}; choose from {', '.join(sorted(KINDS))}"
            )
        result[key] = parse(KINDS[key], text, key)
    return result


def check_settings(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Settings by name, each of its type; an unknown name or a value that is not valid is refused."""
    return build_some(KINDS, dict(settings), where)


def make_recipe(settings: Mapping[str, Any]) -> Recipe:
    """The recipe of settings by name; those of the network go into its `network`."""
    checked = check_settings(settings)
    own = {name: value for name, value in checked.items() if name in RECIPE}
    return Recipe(**own, network={name: value for name, value in checked.items() if name in NETWORK})


def by_name(recipe: Recipe) -> dict[str, Any]:
    """The inverse of `make_recipe`."""
    return {name: getattr(recipe, name) for name in RECIPE} | recipe.network


def read_config(path: str | Path) -> dict[str, Any]:
    """Settings by name from a TOML file (`learning_rate = 1e-3`), or from the settings.json that a RUN holds."""
    path = Path(path)
    if path.suffix.lower() != ".json":
        return check_settings(read_toml(path), shown(path))
    record = read_json(path, ConfigError)
    if not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
        raise ConfigError(f"{shown(path)} is no settings.json of a training; give one, or a .toml file of settings")
    return by_name(Recipe.from_json(record["settings"], shown(path)))


def recorded_data(path: str | Path) -> str | None:
    """The hash of the data that a settings.json was trained on; a TOML file has none."""
    record = read_json(path, ConfigError) if Path(path).suffix.lower() == ".json" else {}
    return record.get("data")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{shown(path)} has more than {MOST_BYTES >> 20} MB; give a file of settings")
        return tomllib.loads(content.decode())
    except FileNotFoundError as problem:
        raise ConfigError(f"{shown(path)} does not exist; give a .toml file or the settings.json of a RUN") from problem
    except OSError as problem:
        raise ConfigError(f"{shown(path)} cannot be read ({shown(problem.strerror)}); check the path") from problem
    except (ValueError, RecursionError) as problem:
        raise ConfigError(
            f"{shown(path)} is not valid TOML ({shown(problem)}); write lines such as learning_rate = 1e-3"
        ) from problem


def setting_text(value: Any) -> str:
    """A setting as `--set` takes it.

    >>> setting_text((4, 8, 8, 16)), setting_text(True), setting_text(((2, 2, 4), (1, 1, 2)))
    ('4,8,8,16', 'true', '2x2x4,1x1x2')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join("x".join(map(str, part)) if isinstance(part, list | tuple) else str(part) for part in value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def train_command(settings: dict[str, Any]) -> str:
    """The command that trains with these settings and no others."""
    minutes = settings.get("max_minutes")
    words = ["veloxseg train PREPARED -o RUN"] + ([] if minutes is None else [f"--max-minutes {minutes:g}"])
    rest = {name: value for name, value in settings.items() if value is not None and name != "max_minutes"}
    return " ".join([*words, "--set", *(f"{name}={setting_text(value)}" for name, value in rest.items())])
