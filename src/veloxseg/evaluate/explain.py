"""The words of the report: how every figure came about, and from which files."""

from collections.abc import Iterable

from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.markup import Html, element, join, table
from veloxseg.evaluate.metrics import POLICY
from veloxseg.evaluate.statistics import RESAMPLES

__all__ = ["method", "provenance"]


def method(evaluation: Evaluation) -> Html:
    """Definitions, and the policy for what is empty, missed or missing."""
    definitions = {
        "Dice, precision, recall": "2|P∩L|/(|P|+|L|), |P∩L|/|P|, |P∩L|/|L| over voxels, P predicted and L labelled.",
        "HD95": "the larger of the two directed 95th percentiles of the distances between surfaces, as MONAI.",
        "NSD": "normalised surface distance: the part of both surfaces that is within "
        f"{evaluation.tolerance_mm:g} mm of the other.",
        "Vol. error": "predicted minus labelled.",
        "Lesion": "a connected component (18 neighbours, as AutoPET); found if the prediction touches it, false if it "
        "touches no label.",
        "Dice of a lesion": "against the predicted lesions that touch it, without what these share with other lesions.",
        "Interval": f"95 %, bootstrap over cases ({RESAMPLES} resamples, seed {evaluation.seed}).",
        "Comparison": "Wilcoxon's signed-rank test over the same cases, two-sided; p corrected by Holm for all tests "
        "of this report.",
    }
    outcomes = ((name.capitalize(), text) for name, text in POLICY.items())
    heading = element("h3", "Empty and missed structures")
    return join((_definitions(definitions.items()), heading, _definitions(outcomes)))


def provenance(evaluation: Evaluation) -> Html:
    """Settings, versions, and the hash of every file."""
    record = evaluation.provenance
    structures = (f"{name} = {', '.join(map(str, values))}" for name, values in evaluation.structures.items())
    versions = f"veloxseg {record['veloxseg']}, Python {record['python']}, NumPy {record['numpy']}"
    values = [
        ("Labels", record["labels"]),
        *((f"Predictions, {name}", folder) for name, folder in record["predictions"].items()),
        *(
            (f"Made by, {name}", f"{maker}, {count} of {len(evaluation.cases)} cases")
            for name, makers in record["predicted_by"].items()
            for maker, count in makers.items()
        ),
        ("Structures", "; ".join(structures)),
        ("NSD tolerance", f"{evaluation.tolerance_mm:g} mm"),
        ("Bootstrap seed", str(evaluation.seed)),
        ("Made", f"{record['created']}, in {record['seconds']} s"),
        ("With", f"{versions}, {record['machine']}"),
    ]
    groups = {"label": record["sha256"]["labels"], **record["sha256"]["predictions"]}
    files = (
        (_left(case), _left(group), _left(element("code", value)))
        for group, cases in groups.items()
        for case, value in cases.items()
    )
    heads = (element("th", name, scope="col", class_="text") for name in ("Case", "File of", "SHA-256"))
    hashes = element("details", element("summary", "Hashes of all files"), table(heads, files))
    return join((_definitions(values), hashes))


def _left(value: str) -> Html:
    return element("td", value, class_="text")


def _definitions(pairs: Iterable[tuple[str, str]]) -> Html:
    return element(
        "dl", *(part for name, text in pairs for part in (element("dt", name), element("dd", text)))
    )
