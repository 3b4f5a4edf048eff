"""The rows of the paper's tables, as data: what `train --set` would be given, and what the paper prints for it.

A row's settings are those of `train` (recipe and network), and a row with `prune` starts from another row's weights.
Values of the paper are Dice in percent, parameters in millions (M) and multiply-accumulates in thousand millions (G),
as printed in the table that `place` names by its caption. A user's own table is a TOML file:

    title = "Rates"
    first = "low"            # the row that the others are tested against; the first one if it is not given
    [settings]               # of all rows
    model = "s"
    [rows.low]
    learning_rate = 2.5e-4
    [rows.high]
    learning_rate = 4e-3
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.peers.published import PUBLISHED
from veloxseg.peers.registry import PEERS
from veloxseg.schema import OneOf, build, settle
from veloxseg.train.settings import check_settings, read_toml

__all__ = ["NAMES", "Pruning", "Row", "Table", "choose_rows", "find_table", "modality_rows"]

ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,59}")
Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A row that is cut from another one's network and trained again."""

    of: str  # the row that it starts from
    what: Annotated[str, OneOf("ffn", "channels")]
    to: str  # how many parameters are kept: a number such as 1.2M or 60%, or a row with as many

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str  # of its folder
    title: str
    settings: Settings = field(default_factory=dict)  # on top of the table's
    paper: dict[str, float] = field(default_factory=dict)  # what is printed: {"Dice": 62.51, "M": 1.66, "G": 1.79}
    prune: Pruning | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str
    title: str
    rows: tuple[Row, ...]
    first: str  # the row that the others are compared with
    settings: Settings = field(default_factory=dict)
    place: str = ""  # where the paper has it
    note: str = ""  # what a reader of the paper's values must know

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        for name in names:
            if not ROW_NAME.fullmatch(name):
                raise ConfigError(f"row {shown(name)!r} cannot name a folder; use letters, digits, +, -, _ and dots")
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"{shown(self.title)} has no row, or two of one name; give each row its own")
        wanted = [self.first, *(row.prune.of for row in self.rows if row.prune is not None)]
        if unknown := [name for name in wanted if name not in names]:
            raise ConfigError(f"{shown(self.title)} has no row {shown(unknown[0])!r}; it has {', '.join(names)}")

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def settings_of(self, row: Row) -> Settings:
        return self.settings | row.settings


FOUR, FULL = (4, 4, 4, 4), (16, 32, 64, 128)
# the ablations of the paper begin with the convolution stream alone, hidden layers of four widths, and the old head
CONVOLUTION: Settings = {"attention": "none", "head": "transposed", "expansions": FOUR, "teachers": False}
BOTH: Settings = {"head": "transposed", "teachers": False}  # with the transformer stream
AUTOPET = "AutoPET-II, 300 epochs"


def _sizes(groups: Sequence[int]) -> str:
    return "⟨" + ", ".join(map(str, groups)) + "⟩"


def _groups(groups: tuple[int, ...], **paper: float) -> Row:
    name = "groups-" + "-".join(map(str, groups))
    return Row(name=name, title=f"group sizes {_sizes(groups)}", settings={"group_sizes": groups}, paper=paper)


def _with(row: Row, settings: Settings) -> Row:
    return replace(row, settings=settings | row.settings)


def _modules() -> Table:
    conv = (
        Row(
            name="width-32",
            title="widths ⟨32, 64, 128, 256⟩, kernel 7",
            settings={"base_width": 32, "kernel_sizes": (7,), "group_sizes": (1, 1, 1, 1)},
            paper={"Dice": 48.96, "M": 2.65, "G": 5.31},
        ),
        Row(
            name="kernel-7",
            title="widths ⟨16, 32, 64, 128⟩, kernel 7",
            settings={"kernel_sizes": (7,), "group_sizes": (1, 1, 1, 1)},
            paper={"Dice": 50.10, "M": 0.73, "G": 2.41},
        ),
        _groups((1, 1, 1, 1), Dice=53.65, M=0.66, G=2.30),
        _groups((1, 2, 2, 4), Dice=53.95, M=0.75, G=2.33),
        _groups((2, 4, 4, 8), Dice=54.40, M=0.89, G=2.44),
        _groups((4, 8, 8, 16), Dice=55.84, M=1.18, G=2.66),
        _groups((8, 16, 16, 32), Dice=55.14, M=1.75, G=3.11),
        _groups(FULL, Dice=56.20, M=4.76, G=4.18),
    )
    wide = {"expansions": FOUR, "transformer_expansions": FOUR}
    both = (
        Row(
            name="attention-depth-2",
            title="attention, depth ⟨2, 2, 2, 2⟩, expansion ⟨4, 4, 4, 4⟩",
            settings=BOTH | wide | {"transformer_depths": (2, 2, 2, 2)},
            paper={"Dice": 59.56, "M": 2.37, "G": 3.07},
        ),
        Row(
            name="attention-depth-1",
            title="attention, depth ⟨1, 1, 1, 1⟩, expansion ⟨4, 4, 4, 4⟩",
            settings=BOTH | wide,
            paper={"Dice": 61.03, "M": 1.88, "G": 2.90},
        ),
        Row(
            name="expansion-3322",
            title="expansion ⟨3, 3, 2, 2⟩",
            settings=dict(BOTH),
            paper={"Dice": 61.43, "M": 1.61, "G": 2.84},
        ),
        Row(
            name="teacher",
            title="+ texture teachers",
            settings={"head": "transposed", "teachers": True, "transfer": "none"},
            paper={"Dice": 59.64, "M": 1.61, "G": 2.84},
        ),
        Row(
            name="pixel-shuffle",
            title="+ pixel shuffle",
            settings={"teachers": True, "transfer": "none"},
            paper={"Dice": 59.71, "M": 1.66, "G": 1.79},
        ),
        Row(
            name="gram",
            title="+ Gram supervision: VeloxSeg-B",
            settings={"teachers": True, "transfer": "gram"},
            paper={"Dice": 62.51, "M": 1.66, "G": 1.79},
        ),
    )
    return Table(
        name="modules",
        title="Module ablation",
        place="Table 'Module ablation experiments on AutoPET-II'",
        note=f"The paper's values are of {AUTOPET}. It prints three of these rows twice.",
        rows=(*(_with(row, CONVOLUTION) for row in conv), *both),
        first="gram",
    )


def _group_rule() -> Table:
    rows = []
    for n in (1, 2, 4, 8):
        rule, same = (n, 2 * n, 2 * n, 4 * n), (2 * n,) * 4
        paper = {"Dice": 54.14} if n == 4 else {}
        rows += [
            Row(
                name=f"jl-n{n}", title=f"JL rule, n = {n}: {_sizes(rule)}", settings={"group_sizes": rule}, paper=paper
            ),
            Row(name=f"same-n{n}", title=f"the same 2n, n = {n}: {_sizes(same)}", settings={"group_sizes": same}),
        ]
    return Table(
        name="groups",
        title="Group sizes by the JL rule against equal ones",
        place="Figure 'Dice performance comparison between different group size configurations'",
        note="A plot without numbers; its text gives 54.14 for n = 4. It calls {2n, 2n, 2n, 2n} the larger setup, "
        "which it is in MACs only: it has fewer parameters.",
        settings=CONVOLUTION | {"kernel_sizes": (3,)},
        rows=tuple(rows),
        first="jl-n4",
    )


def _jl() -> Table:
    printed = (
        ((1, 1, 1, 1), 37.95, 85.82, 0.618, 2.637),
        ((4, 8, 8, 16), 44.20, 86.82, 0.709, 2.712),
        (FULL, 43.21, 87.98, 1.342, 3.029),
    )
    return Table(
        name="jl",
        title="Depth-wise, JL-guided and full convolution",
        place="Table 'Performance comparison of different group size configurations across datasets'",
        note="The paper's values are of HECKTOR 2022 (parameters and MACs too) and BraTS 2021, convolutions alone.",
        settings=CONVOLUTION | {"kernel_sizes": (3,)},
        rows=tuple(
            _groups(groups, **{"Dice HECKTOR": hecktor, "Dice BraTS": brats, "M": millions, "G": macs})
            for groups, hecktor, brats, millions, macs in printed
        ),
        first="groups-4-8-8-16",
    )


def _attention() -> Table:
    printed = {
        "paired": ("paired windows", 61.43, 1.61, 2.84, 724, 148),
        "window": ("windows", 56.01, 1.51, 2.80, 678, 1066),
        "downsampled": ("down-sampled", 55.18, 1.52, 2.78, 1066, 136),
    }
    return Table(
        name="attention",
        title="Attention mechanisms",
        place="Table 'Computation consumption of different attention variants'",
        note=f"The paper's values are of {AUTOPET}; its memory is a GPU's in MB at batch 2.",
        settings=dict(BOTH),
        rows=tuple(
            Row(
                name=name,
                title=title,
                settings={"attention": name},
                paper={"Dice": dice, "M": m, "G": g, "training MB": training, "inference MB": inference},
            )
            for name, (title, dice, m, g, training, inference) in printed.items()
        ),
        first="paired",
    )


def _transfer() -> Table:
    printed = (
        ("gram", "Gram matrices (SDKT)", "gram", 62.51, 241.08, 842),
        ("none", "teachers, no transfer", "none", 59.71, 291.81, 824),
        ("l1", "ℓ1", "l1", 1.67, 626.79, 824),
        ("affinity", "affinity", "affinity", 41.44, 354.01, 894),
        ("shared-roi", "shared region of interest", "shared-roi", 57.15, 397.43, 1064),
    )
    without = Row(
        name="no-teachers",
        title="no teachers (transposed head)",
        settings=dict(BOTH),
        paper={"Dice": 61.43, "M": 1.61, "G": 2.84, "training MB": 724},
    )
    return Table(
        name="transfer",
        title="Knowledge transfer",
        place="Tables 'Comparison of knowledge transfer paths' and 'Computation consumption of different knowledge "
        "transfer methods'",
        note=f"The paper's values are of {AUTOPET}; its memory is a GPU's in MB at batch 2.",
        rows=(
            *(
                Row(
                    name=name,
                    title=title,
                    settings={"teachers": True, "transfer": transfer},
                    paper={"Dice": dice, "HD95": hd95, "M": 1.66, "G": 1.79, "training MB": memory},
                )
                for name, title, transfer, dice, hd95, memory in printed
            ),
            without,
        ),
        first="gram",
    )


def _loss_weights() -> Table:
    printed = (
        (0.5, 2.0, 62.51), (0.5, 2.5, 62.23), (0.5, 1.5, 62.44), (0.5, 1.0, 61.66), (0.5, 0.5, 60.55),
        (1.0, 1.5, 61.53), (1.5, 1.5, 58.03),
    )  # fmt: skip
    return Table(
        name="loss-weights",
        title="Weights of reconstruction and transfer",
        place="Table 'Hyperparameters experiments with loss weight on AutoPET-II'",
        note=f"The paper's values are of {AUTOPET}; it prints the row (0.5, 1.5) twice.",
        settings={"teachers": True},
        rows=tuple(
            Row(
                name=f"rc{rc:g}-sdkt{sdkt:g}",
                title=f"λ_rc = {rc:g}, λ_sdkt = {sdkt:g}",
                settings={"reconstruction_weight": rc, "transfer_weight": sdkt},
                paper={"Dice": dice},
            )
            for rc, sdkt, dice in printed
        ),
        first="rc0.5-sdkt2",
    )


def modality_rows(names: Sequence[str]) -> tuple[Row, ...]:
    """Every modality alone, pairs where there are more than two, all as channels of one stream, all in own streams."""
    printed = {
        "ct": {"Dice": 21.43, "M": 1.39, "G": 1.61},
        "pet": {"Dice": 49.28, "M": 1.39, "G": 1.61},
        "early": {"Dice": 56.69, "M": 1.39, "G": 1.70},
        "streams": {"Dice": 62.51, "M": 1.66, "G": 1.79},
    }
    of_paper = printed if sorted(names) == ["ct", "pet"] else {}
    alone = [Row(name=name, title=f"{name} alone", settings={"modalities": (name,)}) for name in names]
    pairs = [
        Row(name=f"{a}+{b}", title=f"⟨{a}, {b}⟩, own streams", settings={"modalities": (a, b)})
        for a, b in (itertools.combinations(names, 2) if len(names) > 2 else ())
    ]
    early = Row(name="early", title=f"{' + '.join(names)}, early fusion", settings={"fusion": "early"})
    streams = Row(name="streams", title=f"⟨{', '.join(names)}⟩, own streams", settings={"fusion": "separate"})
    together = (streams, early) if len(names) > 1 else ()
    return tuple(replace(row, paper=of_paper.get(row.name, {})) for row in (*together, *pairs, *alone))


def _modalities(names: Sequence[str]) -> Table:
    rows = modality_rows(names)
    return Table(
        name="modalities",
        title="Modalities and how they are fused",
        place="Table 'Modality ablation experiments performed on AutoPET-II'",
        note=f"The paper's values are of {AUTOPET}.",
        rows=rows,
        first=rows[0].name,
    )


def _scaling() -> Table:
    printed = {"b": (70.05, 1.66, 1.79), "s": (68.56, 1.19, 1.41), "b+": (71.56, 5.26, 4.27), "l": (72.11, 2.65, 2.45)}
    return Table(
        name="scaling",
        title="Scaling law",
        place="Table 'Accuracy results of VeloxSeg after increasing model size'",
        note="The paper's values are of AutoPET-II in nnU-Net's framework, which has another recipe.",
        rows=tuple(
            Row(
                name=name,
                title=f"VeloxSeg-{name.upper()}",
                settings={"model": name},
                paper={"Dice": dice, "M": m, "G": g},
            )
            for name, (dice, m, g) in printed.items()
        ),
        first="b",
    )


def _peers() -> Table:
    published = PUBLISHED["autopet2"]
    rows = [Row(name="b", title="VeloxSeg-B", settings={"model": "b"}), Row(name="s", title="VeloxSeg-S")]
    rows[1] = replace(rows[1], settings={"model": "s"})
    rows += [Row(name=name, title=peer.title, settings={"model": name}) for name, peer in PEERS.items()]

    def printed(name: str) -> dict[str, float]:
        figures = published.get(name)
        if figures is None:
            return {}
        found = {"Dice": figures.dice, "M": figures.parameters, "G": figures.macs, "training MB": figures.training_mb}
        return {key: value for key, value in found.items() if value is not None}

    return Table(
        name="peers",
        title="VeloxSeg beside its peers",
        place="Tables 'Comparisons of segmentation performance on PET/CT datasets' and 'Computational performance'",
        note=f"The paper's values are of {AUTOPET}; its memory is a GPU's in MB at batch 2. Peers have no teachers.",
        rows=tuple(replace(row, paper=printed(row.name)) for row in rows),
        first="b",
    )


def _pruning() -> Table:
    return Table(
        name="pruning",
        title="JL-guided convolution against ℓ2 pruning",
        place="Table 'Domain generalization capability comparison of the JLC and ℓ2 pruning methods'",
        note="The paper's values are of BraTS 2021 → BraTS 2016, its external test: give yours by --external.",
        settings=CONVOLUTION,
        rows=(
            Row(name="jlc", title="JLC", paper={"Dice external": 79.34, "M": 1.20}),
            Row(
                name="full",
                title="full convolution",
                settings={"group_sizes": FULL},
                paper={"Dice external": 79.97, "M": 4.78},
            ),
            Row(
                name="full-pruned",
                title="full convolution, pruned and trained again",
                settings={"group_sizes": FULL},
                paper={"Dice external": 62.00, "M": 1.27},
                prune=Pruning(of="full", what="channels", to="jlc"),
            ),
        ),
        first="jlc",
    )


def _ffn() -> Table:
    wide = {"expansions": FOUR, "transformer_expansions": FOUR}
    return Table(
        name="ffn",
        title="Widths of the feed-forward layers, by pruning",
        place="Table 'Ratio of channels to input embeddings after pruning the FFN layers of PWA and JLC'",
        note="The paper prints Dice 69.94 before and 68.49 after pruning; its ratios by depth and stream stand in "
        "docs/paper.md, beside those that came out here.",
        rows=(
            Row(name="wide", title="expansion ⟨4, 4, 4, 4⟩", settings=wide, paper={"Dice": 69.94}),
            Row(
                name="pruned",
                title="pruned to as many parameters as ⟨3, 3, 2, 2⟩",
                settings=wide,
                paper={"Dice": 68.49},
                prune=Pruning(of="wide", what="ffn", to="chosen"),
            ),
            Row(name="chosen", title="expansion ⟨3, 3, 2, 2⟩: VeloxSeg-B"),
        ),
        first="wide",
    )


_MAKERS = {
    "modules": _modules,
    "groups": _group_rule,
    "jl": _jl,
    "attention": _attention,
    "transfer": _transfer,
    "loss-weights": _loss_weights,
    "modalities": _modalities,
    "scaling": _scaling,
    "peers": _peers,
    "pruning": _pruning,
    "ffn": _ffn,
}
NAMES = tuple(_MAKERS)


def find_table(name: str, modalities: Sequence[str]) -> Table:
    """A table of the paper by its name, or a user's own from a TOML file; `modalities` are those of the data."""
    if name.lower().endswith(".toml"):
        return read_table(Path(name))
    if name not in _MAKERS:
        raise ConfigError(
            f"there is no study {shown(name)!r}{did_you_mean(name, NAMES)}; choose from {', '.join(NAMES)}, "
            "or give a .toml file"
        )
    return _modalities(modalities) if name == "modalities" else _MAKERS[name]()  # type: ignore[operator]


def choose_rows(table: Table, names: Sequence[str]) -> Table:
    """The table with these rows alone, and those that they are pruned from; () for all."""
    known = [row.name for row in table.rows]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"study {table.name} has no row {shown(name)!r}{did_you_mean(name, known)}; it has {', '.join(known)}"
            )
    if not names:
        return table
    wanted = set(names)
    for row in table.rows:
        if row.name in wanted and row.prune is not None:
            wanted |= {row.prune.of} | ({row.prune.to} & set(known))
    rows = tuple(row for row in table.rows if row.name in wanted)
    return replace(table, rows=rows, first=table.first if table.first in wanted else names[0])


@dataclass(frozen=True, kw_only=True)
class _File:
    """A table as a TOML file has it."""

    rows: dict[str, dict[str, Any]]
    title: str = ""
    first: str = ""
    note: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def read_table(path: Path) -> Table:
    where = shown(path)
    value: _File = build(_File, read_toml(path), where, ConfigError, "see `veloxseg study -h`")
    rows = []
    for name, entry in value.rows.items():
        entry = dict(entry)
        prune = entry.pop("prune", None)
        rows.append(
            Row(
                name=name,
                title=str(entry.pop("title", name)),
                paper=_printed(entry.pop("paper", {}), f"{where}: rows.{name}.paper"),
                prune=None if prune is None else build(Pruning, prune, f"{where}: rows.{name}.prune", ConfigError),
                settings=check_settings(entry, f"{where}: rows.{name}"),
            )
        )
    return Table(
        name=path.stem,
        title=value.title or path.stem,
        note=value.note,
        settings=check_settings(value.settings, f"{where}: settings"),
        rows=tuple(rows),
        first=value.first or next(iter(value.rows), ""),
    )


def _printed(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, Mapping) or not all(isinstance(number, int | float) for number in value.values()):
        raise ConfigError(f"{where} must name numbers, such as {{ Dice = 62.51, M = 1.66 }}")
    return {str(name): float(number) for name, number in value.items()}
