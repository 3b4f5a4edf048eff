"""Lies on the command line: names of cases and files, and numbers that no option means."""

import argparse
import os
import random
import shutil
from functools import cache
from pathlib import Path

from attacks.attack import Attack, contents, veloxseg
from attacks.bench import Bench, predict

NAMES = [
    "a b", "é", "日本", "ℵ₀", "case[1]", "c*", "?", "-x", "--help", "x=y", "ct=1", "a\nb", "a\tb", "x" * 200, "x" * 250,
    "x" * 300, ".", "..", "...", ".hidden", "~", "$HOME", "`id`", "%s", "{case}", "CON", "nul.txt", "dataset", "plan",
    "a'b", 'a"b', "=1+1", "+1", "@x", "<b>", "&amp;", "a\\b", "a;b", "\u202egnp", "e\u0301", "a\x7f", "a_0000", "0",
    "a.nii", "../up", "../../up", "/abs", "a/b", "", " ", "\udcff",
]  # fmt: skip
NUMBERS = [
    "-5", "-0", "nan", "inf", "-inf", "1e400", "-1e-400", "²", "①", "٣٣٣٣٣", "9" * 5000, "1" + "0" * 4400, "1.5",
    "0x10", "1_0", "", " ", "x", "0", "1e9", "1,5", "--", "-1", "99999999999999999999", "½", "True", "None", "1e-320",
]  # fmt: skip
INPUTS = [
    "=x", "ct=", "ct", "=", "CT={ct}", "mr={ct}", "ct={ct}/", "ct={ct}\n", "ct=", "ct={missing}", "{missing}",
    "ct={pet}", "ct={folder}", "{ct}", "x" * 5000, "ct=" + "x/" * 3000, "ct=\udcff", "ct=/dev/null", "ct=/dev/zero",
    "ct=.",
]  # fmt: skip
PICKS = ["bogus=1", "ct", "ct=", "=1", "ct=-1", "ct=1", "ct=9999999", "ct=²", "ct=1e3", "ct=0", "x" * 5000, "ct=a\nb"]


def name(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A case or a file has an odd name; it works, or is refused, and nothing is written outside of its folder."""
    word, verb = rng.choice(NAMES), rng.choice(["folder", "file", "list", "prepare", "evaluate"])
    work, output = folder / "in", folder / "out"
    work.mkdir()
    told = f"{verb} {word[:60]!r}"
    command: list[object] = ["info", folder / word] if verb != "file" else []
    try:
        if verb == "folder":
            _copies(bench, work, {"ct": f"{word}_0000.nii.gz", "pet": f"{word}_0001.nii.gz"})
            command = ["predict", "-m", bench.quick_model, "-i", work, "-o", output, "--threads", 1, "--overlap", 0]
        elif verb == "file":
            command = predict(bench.quick_model, bench.scans, Path(f"{output}/{word}.nii.gz"))
        elif verb in ("list", "prepare"):
            shutil.copytree(bench.dataset, work, dirs_exist_ok=True)
            rows = (work / "rows.csv").read_text()
            (work / "rows.csv").write_text(rows.replace("\none,", "\n" + '"' + word.replace('"', '""') + '",'))
            prepare = ["prepare", work / "rows.csv", "-o", output, "--workers", 0, "--patch", 32, 32, 32]
            command = ["check", work / "rows.csv", "--workers", 1] if verb == "list" else prepare
        else:
            for part in ("p", "l"):
                (work / part).mkdir()
                shutil.copy(bench.dataset / "labelsTr" / "one.nii.gz", work / part / f"{word}.nii.gz")
            command = ["evaluate", "-p", work / "p", "-l", work / "l", "-o", output]
    except (OSError, ValueError):  # a name that no file can have
        told += " (as a path only)"
    before = set(contents(folder))
    # with "file" the odd name is the user's own way to the mask, which may lead out of `output`
    place = os.path.dirname(os.path.normpath(f"{output}/{word}")) if verb == "file" else output

    def wrong() -> str:
        new = [path for path in set(contents(folder)) - before if not path.startswith(f"{place}/")]
        return f"written elsewhere: {new[:3]}" if new else ""

    return Attack(told=told, act=veloxseg(*command), inputs=(work, bench.scans), wrong=wrong)


def _copies(bench: Bench, work: Path, names: dict[str, str]) -> None:
    for modality, file in names.items():
        shutil.copy(bench.scans / f"{modality}.nii.gz", work / file)


# the verbs that end in seconds if the option's number is taken: no benchmark, no server
QUICK = ("predict", "evaluate", "check", "prepare", "train", "phantom")


@cache
def numeric_options() -> list[tuple[str, str, int]]:
    """Every option of every verb that takes a number: verb, option, how many numbers."""
    from veloxseg.cli import build_parser

    (verbs,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return [
        (verb, action.option_strings[-1], action.nargs if isinstance(action.nargs, int) else 1)
        for verb, parser in verbs.choices.items()
        for action in parser._actions
        if action.option_strings and action.type not in (None, Path) and verb in QUICK
    ]


def option(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A number, a modality or a setting that makes no sense, for any verb."""
    kind = rng.choice(["number", "number", "set", "input", "pick", "region"])
    output = folder / "out"
    honest = predict(bench.quick_model, bench.scans, output / "mask.nii.gz")
    if kind == "number":
        verb, flag, count = rng.choice(numeric_options())
        extra = [f"{flag}={rng.choice(NUMBERS)}"]
        if count > 1:
            extra = [flag, *(rng.choice(NUMBERS) for _ in range(count))]
        command = [*_honest(verb, bench, folder), *extra]
    elif kind == "set":
        from veloxseg.train.settings import NETWORK, RECIPE

        setting = f"{rng.choice([*RECIPE, *NETWORK])}={rng.choice(NUMBERS)}"
        command = ["train", folder / "missing", "-o", output, "--set", setting]
        if rng.random() < 0.5:
            config = folder / rng.choice(["a.toml", "settings.json"])
            config.write_text(rng.choice([setting, setting.replace("=", "=" + "[" * 5000), "[a]", '{"settings": {}}']))
            command = ["train", folder / "missing", "-o", output, "--config", config]
    elif kind == "input":
        paths = {
            "ct": bench.scans / "ct.nii.gz",
            "pet": bench.scans / "pet.nii.gz",
            "folder": bench.scans,
            "missing": folder / "no",
        }
        command = [honest[0], *honest[1:3], *honest[7:], "-i", rng.choice(INPUTS).format(**paths)]
        command += ["-i", f"pet={paths['pet']}"] * rng.randrange(3)
    elif kind == "pick":
        command = [*honest, rng.choice(["--series", "--volume"]), rng.choice(PICKS)]
    else:
        regions = ["x", "=", "a=", "a=x", "a=1,", "a=-1", "a=999999", "a=1 a=2", f"a={'9' * 5000}", "a=²", "brats"]
        labels = bench.dataset / "labelsTr"
        command = ["evaluate", "-p", labels, "-l", labels, "-o", output, "--regions", *rng.choice(regions).split(" ")]
    told = " ".join(str(word)[:40] for word in command if not str(word).startswith("/"))
    return Attack(told=told, act=veloxseg(*command), inputs=(bench.scans, bench.quick_model, bench.dataset))


def _honest(verb: str, bench: Bench, folder: Path) -> list[object]:
    """A command that is quick if the option's number is taken."""
    labels, output = bench.dataset / "labelsTr", folder / "out"
    commands: dict[str, list[object]] = {
        "predict": predict(bench.quick_model, bench.scans, output / "mask.nii.gz"),
        "evaluate": ["evaluate", "-p", labels, "-l", labels, "-o", output],
        "check": ["check", bench.dataset / "list.json"],
        "prepare": ["prepare", folder / "missing", "-o", output],
        "train": ["train", folder / "missing", "-o", output],
        "phantom": ["phantom", bench.dataset, "--cases", 1, "--size", 16, 16, 16],  # which is there already
    }
    return commands[verb]
