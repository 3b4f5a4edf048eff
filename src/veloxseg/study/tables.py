"""The paper's tables by name: those of its ablations, and those that compare whole networks."""

from collections.abc import Callable, Sequence
from pathlib import Path

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.study import ablations, comparisons
from veloxseg.study.table import Table, read_table

__all__ = ["NAMES", "find_table"]

Maker = Callable[[Sequence[str]], Table]  # of the data's modalities, which most tables do not ask for

TABLES: dict[str, Maker] = {
    "modules": lambda _: ablations.modules(),
    "groups": lambda _: ablations.groups(),
    "jl": lambda _: ablations.jl(),
    "attention": lambda _: ablations.attention(),
    "transfer": lambda _: ablations.transfer(),
    "loss-weights": lambda _: ablations.loss_weights(),
    "modalities": comparisons.modalities,
    "scaling": lambda _: comparisons.scaling(),
    "peers": comparisons.peers,
    "pruning": lambda _: comparisons.pruning(),
    "ffn": lambda _: comparisons.ffn(),
}
NAMES = tuple(TABLES)


def find_table(name: str, modalities: Sequence[str]) -> Table:
    """A table of the paper by its name, or a user's own from a TOML file; `modalities` are those of the data."""
    if name.lower().endswith(".toml"):
        return read_table(Path(name))
    if name not in TABLES:
        raise ConfigError(
            f"there is no study {shown(name)!r}{did_you_mean(name, NAMES)}; choose from {', '.join(NAMES)}, "
            "or give a .toml file"
        )
    return TABLES[name](modalities)
