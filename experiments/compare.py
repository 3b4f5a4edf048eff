"""The results of `sts_crossvalidation.py` beside each other: a table, a picture, and whether a difference is noise.

    python experiments/compare.py NAME[=LABEL] [NAME[=LABEL] ...] -o PICTURE

NAME is the stem of a file in results/, such as sts_ct_pet_0, LABEL what it is called in table and picture; the others
are compared with the first one, patient by patient (Wilcoxon signed rank test, exact; Holm's correction for the number
of comparisons).
"""

import argparse
import statistics
from pathlib import Path

from veloxseg.evaluate.statistics import compare, holm
from veloxseg.files import read_json

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    labels = dict(name.partition("=")[::2] for name in options.names)
    results = {label or name: read_json(RESULTS / f"{name}.json")["cases"] for name, label in labels.items()}
    shared = sorted(set.intersection(*(set(cases) for cases in results.values())))
    dice = {name: [cases[case]["dice_prepared_grid"] for case in shared] for name, cases in results.items()}
    first, *others = dice
    tests = [
        compare(dice[first], dice[name], names=(first, name), structure="tumour", metric="dice") for name in others
    ]
    print(f"Dice of {len(shared)} held-out patients on the prepared grid\n")
    print("| | mean | median | least | better than the first in | p (Holm) |\n|---|---|---|---|---|---|")
    for name, test in zip(dice, (None, *holm(tests)), strict=True):
        values = dice[name]
        print(
            f"| {name} | {statistics.mean(values):.3f} | {statistics.median(values):.3f} | {min(values):.3f} |", end=""
        )
        print(" | |" if test is None else f" {test.second_better} of {test.count} | {test.p_holm:.3f} |")
    draw(dice, options.output)


def draw(dice: dict[str, list[float]], path: Path) -> None:
    """A box for each, and a line for every patient."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 + 1.5 * len(dice), 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = range(1, len(dice) + 1)
    for values in zip(*dice.values(), strict=True):
        axes.plot(places, values, color="#bbbbbb", linewidth=0.7, marker=".", markersize=3, zorder=1)
    axes.boxplot(list(dice.values()), widths=0.45, medianprops={"color": "#d62728"}, showfliers=False)
    labels = [f"{name}\n{statistics.mean(values):.3f}" for name, values in dice.items()]
    axes.set_xticks(list(places), labels)
    axes.set(ylabel="Dice", ylim=(0, 1), title="Held-out patients: a line is a patient; below, the mean")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    main()
