"""The report: one HTML file that needs no network, beside the same figures as JSON and CSV.

The page holds its own style, script and pictures. A content security policy in it forbids everything else, and
every name from outside is escaped (`html.py`), so a report can be mailed and opened without a second thought.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from veloxseg.console import warn
from veloxseg.dataset.dataset import Case
from veloxseg.dataset.reading import read_scan
from veloxseg.errors import ImageError
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.labels import find_images
from veloxseg.evaluate.metrics import METRICS, PRIMARY
from veloxseg.evaluate.report import plots, sections
from veloxseg.evaluate.report.html import Html, data_uri, element
from veloxseg.evaluate.report.pictures import COLOURS, Picture, draw_case, shown_images
from veloxseg.evaluate.report.side_by_side import colour_key, side_by_side
from veloxseg.evaluate.report.tables import PAGE, report_folder, write_tables
from veloxseg.files import atomic_path
from veloxseg.image import Geometry, read
from veloxseg.machine import NOTICE
from veloxseg.types import Array

__all__ = ["write_report"]

STANDING = 0.75  # width / height of a coronal picture below which it shows a body from head to thigh
MOST_IN_HALF = 14  # columns of dots that half of the page's width can hold
MOST_DRAWN = 12  # cases that are named and get pictures; the page should open in a second
MOST_PLOTTED = 4  # structures that get plots of their own; with more the page would be all plots


def write_report(
    evaluation: Evaluation, folder: str | Path, images: str | Path | None = None, *, cases: Sequence[str] = ()
) -> Path:
    """Writes report.html, metrics.json, metrics.csv and per-lesion.csv; `images` are drawn behind the masks.

    Without `images`, those of the data set are drawn, if the labels came as one. `cases` are shown in pictures, at most
    `MOST_DRAWN` of them; without, the worst, median and best.
    """
    folder = report_folder(folder)
    drawn = tuple(case for case in dict.fromkeys(cases) if case in evaluation.cases)
    if len(drawn) > MOST_DRAWN:
        warn(f"pictures are drawn of the first {MOST_DRAWN} of {len(drawn)} cases")
    page = _page(evaluation, Path(images) if images is not None else None, drawn[:MOST_DRAWN])
    write_tables(evaluation, folder)
    with atomic_path(folder / PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")
    return folder / PAGE


def chosen_cases(evaluation: Evaluation) -> dict[str, str]:
    """Worst, median and best case by mean Dice of the first method, among those that it predicted."""
    method = evaluation.methods[0]
    dices = evaluation.case_dice(method)
    ranked = sorted((dice, case) for case, dice in dices.items() if case in evaluation.prediction_files[method])
    chosen: dict[str, str] = {}
    for name, index in (("Worst", 0), ("Best", len(ranked) - 1), ("Median", (len(ranked) - 1) // 2)):
        if ranked and ranked[index][1] not in chosen:
            chosen[ranked[index][1]] = name
    order = ("Worst", "Median", "Best")
    return dict(sorted(chosen.items(), key=lambda item: order.index(item[1])))


def _page(evaluation: Evaluation, images: Path | None, drawn: tuple[str, ...]) -> str:
    source = resources.files("veloxseg.evaluate.report")
    style, script = (source.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=rules),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Segmentation report: {', '.join(evaluation.methods)}"),
        element("style", Html(style)),
    )
    main = element("main", *_sections(evaluation, images, drawn))
    foot = element("footer", f"{NOTICE.capitalize()}. Made by veloxseg {evaluation.provenance['veloxseg']}.")
    body = element("body", _header(evaluation), main, foot, element("script", Html(script)))
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"


def _header(evaluation: Evaluation) -> Html:
    facts = (
        " against ".join(evaluation.methods),
        evaluation.counted_cases,
        *([f"{len(evaluation.apart.cases)} seen in training, scored apart"] if evaluation.apart is not None else []),
        sections.counted(len(evaluation.structures), "structure"),
        evaluation.provenance["created"][:10],
    )
    return element(
        "header",
        element("h1", "Segmentation report"),
        element("p", " · ".join(facts), class_="soft"),
        element("span", NOTICE.capitalize(), class_="notice"),
    )


def _sections(evaluation: Evaluation, images: Path | None, drawn: tuple[str, ...]) -> Iterator[Html]:
    if evaluation.all_seen:
        words = "Every case was seen in training. No figure on this page tells how the model does on new patients."
        yield element("section", element("strong", words), class_="alarm")
    if lines := evaluation.warning_lines():
        yield element("section", element("ul", *(element("li", line) for line in lines)), class_="warnings")
    note = "Mean, 95 % interval, median and the cases they rest on. How empty and missed structures count: see below."
    yield _section(_summary_title(evaluation), *_cards(evaluation), sections.summary_table(evaluation), _note(note))
    if evaluation.apart is not None:
        words = "A model has learnt from these cases, so they are in no other figure, plot or picture of this page."
        title = f"Seen in training: {sections.counted(len(evaluation.apart.cases), 'case')}"
        yield element(
            "section", element("h2", title), _note(words), sections.summary_table(evaluation.apart), class_="seen"
        )
    if len(evaluation.methods) > 1:
        first, *others = evaluation.methods
        note = f"Differences are {' or '.join(others)} minus {first}, with their 95 % interval."
        primary = [comparison for comparison in evaluation.comparisons if comparison.primary]
        secondary = [comparison for comparison in evaluation.comparisons if not comparison.primary]
        yield _section(
            f"Which method is better by {METRICS[PRIMARY].title}?", sections.comparison_table(primary), _note(note)
        )
        note = "These metrics describe the same masks again, and their p is not corrected for their number."
        yield _section("Secondary metrics", sections.comparison_table(secondary), _note(note))
    drawn = drawn or tuple(chosen_cases(evaluation))
    yield _section("Side by side", *side_by_side(evaluation, drawn))
    yield _section("Pictures", *_pictures(evaluation, images, drawn))
    yield _section("Plots", element("div", *_plots(evaluation), class_="plots"))
    note = "FN volume: of missed lesions, mean over cases with lesions; FP volume: of false ones, mean over all cases."
    yield _section("Lesion by lesion", sections.lesion_table(evaluation), _note(note))
    hint = "Find a case …"
    search = element("input", class_="filter", type="search", placeholder=hint, aria_label=hint, data_table="cases")
    yield _section("Case by case", search, sections.case_table(evaluation), _note("Click a column to sort."))
    yield _section("How this was scored", sections.method_words(evaluation))
    yield _section("Settings and provenance", sections.provenance_words(evaluation))


def _cards(evaluation: Evaluation) -> Iterator[Html]:
    for method in evaluation.methods:
        if len(evaluation.methods) > 1:
            yield element("h3", method)
        yield sections.cards(evaluation, method)


def _summary_title(evaluation: Evaluation) -> str:
    """The headline says which cases its figures are of, where that is known."""
    return "Summary" if evaluation.rests_on == "cases" else f"Summary of {evaluation.rests_on}"


def _note(text: str) -> Html:
    return element("p", element("small", text))


def _section(title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content)


def _plots(evaluation: Evaluation) -> Iterator[Html]:
    caption = "Dice of every case; bar and line: mean and its 95 % interval."
    wide = len(evaluation.structures) * len(evaluation.methods) > MOST_IN_HALF
    yield _plot(plots.case_dice(evaluation), caption, "plot wide" if wide else "plot")
    if len(evaluation.structures) > MOST_PLOTTED:
        yield _note(f"Plots of single structures are drawn for up to {MOST_PLOTTED}; choose them with --regions.")
        return
    for structure in evaluation.structures:
        if png := plots.dice_by_volume(evaluation, structure):
            yield _plot(png, f"{structure}: Dice of single lesions by their labelled volume.")
        if png := plots.volume_scatter(evaluation, structure):
            yield _plot(png, f"{structure}: predicted against labelled volume of every case.")
        if png := plots.bland_altman(evaluation, structure):
            yield _plot(png, f"{structure}: Bland–Altman; line: mean, dashed: ±1.96 standard deviations.")


def _plot(png: bytes, caption: str, kind: str = "plot") -> Html:
    image = element("img", src=data_uri(png), alt=caption)
    return element("figure", image, element("figcaption", caption), class_=kind)


def _pictures(evaluation: Evaluation, images: Path | None, drawn: Sequence[str]) -> Iterator[Html]:
    yield colour_key({n: c for n, c in COLOURS.items() if n != "wrong structure" or len(evaluation.structures) > 1})
    found = find_images(images) if images is not None else evaluation.image_files
    ranks = chosen_cases(evaluation)
    for case in drawn:
        yield element("h3", f"{ranks[case]}: {case}" if case in ranks else case)
        if images is not None and case not in found:
            warn(f"no image of case {case!r} in {images}, so its picture has no background")
        own = evaluation.masks.truth.cases.get(case) if images is None else None
        yield from _case_pictures(evaluation, case, found.get(case, {}), own)
    yield _note("The patient's right is on the left of a picture. Slices cut the largest labelled lesion.")


def _case_pictures(
    evaluation: Evaluation, case: str, files: Mapping[str, Path], of_data_set: Case | None
) -> Iterator[Html]:
    label = evaluation.masks.label(case)
    images = _load(files, of_data_set, label.geometry)
    values = {value for members in evaluation.structures.values() for value in members}
    for method in evaluation.methods:
        if case not in evaluation.prediction_files[method]:
            yield element("p", f"{method}: no prediction", class_="bad")
            continue
        dice = evaluation.case_dice(method).get(case)
        yield element("p", f"{method}: Dice {sections.number(dice, 3)}" if dice is not None else method, class_="soft")
        drawn = draw_case(
            evaluation.masks.prediction(method, case, label).array, label.array, label.geometry, images, values
        )
        yield _arranged(list(drawn), case)


def _arranged(pictures: list[Picture], case: str) -> Html:
    """Puts pictures in a row of one height; beside a standing body the axial ones are stacked to its height."""
    axial = [picture for picture in pictures if picture.plane == "axial"]
    others = [picture for picture in pictures if picture.plane != "axial"]
    if others[0].aspect > STANDING:
        return _block(pictures, case, "row", sum(picture.aspect for picture in pictures))
    room = 0.93  # the second caption takes the rest of the height
    stack = _block(axial, case, "stack", room / sum(1 / picture.aspect for picture in axial))
    bodies = _block(others, case, "row", sum(picture.aspect for picture in others))
    return element("div", stack, bodies, class_="blocks")


def _block(pictures: list[Picture], case: str, kind: str, aspect: float) -> Html:
    figures = (_figure(picture, case) for picture in pictures)
    return element("div", *figures, class_=kind, style=f"--block:{aspect:.3f}")


def _figure(picture: Picture, case: str) -> Html:
    title = picture.title[0].upper() + picture.title[1:]
    image = element("img", src=data_uri(picture.png), alt=f"{case}: {title}")
    return element("figure", image, element("figcaption", title), style=f"--aspect:{picture.aspect:.3f}")


def _load(files: Mapping[str, Path], of_data_set: Case | None, geometry: Geometry) -> dict[str, Array]:
    """Reads images and brings them to the label's grid; one that cannot be read is told and left out.

    The figures matter more than the picture behind them. A case of a data set knows its series and volumes.
    """
    from veloxseg.image.resample import resample_image

    images: dict[str, Array] = {}
    for name in shown_images(files):
        try:
            volume = read(files[name]) if of_data_set is None else read_scan(of_data_set, name)
        except ImageError as error:
            warn(f"not shown: {error}")
            continue
        if volume.geometry.same_grid(geometry):
            images[name] = volume.array
        else:
            images[name] = resample_image(volume, geometry, "linear", float(volume.array.min()))
    return images
