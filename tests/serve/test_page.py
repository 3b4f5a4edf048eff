"""The page in a real browser without WebGL: what a user does, and whether each voxel is where it belongs."""

import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from veloxseg.image import read_label
from veloxseg.serve import Client

pytest.importorskip("starlette", reason="needs the extra serve; `make test-serve` has it")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright; `make test-serve` has it")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--disable-3d-apis", *sandbox])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Callable[..., Any]:
    """A page of which every request and error is noted."""

    def start(url: str, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": 1500, "height": 950}, **options)
        page.set_default_timeout(120_000)  # a busy machine takes its time
        page.problems, own = [], url.partition("/#")[0]
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(own) or page.problems.append(asked.url))
        page.goto(url)
        page.wait_for_selector("#link.on")
        return page

    return start


def settled(page: Any, rows: int | None = None) -> None:
    """Waits until the server has measured the last edit."""
    give_up = time.monotonic() + 60
    while page.inner_text("#saving") or (rows is not None and page.locator("#lesions tbody tr").count() != rows):
        assert time.monotonic() < give_up, page.inner_text("#side")
        page.wait_for_timeout(100)


def until_true(page: Any, expression: str, seconds: float = 30) -> None:
    """Waits for a condition of the page; `wait_for_function` evaluates texts in it, which the page's policy forbids."""
    give_up = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < give_up, expression
        page.wait_for_timeout(50)


def edited(page: Any, count: int) -> None:
    """Waits until the page has made so many edits, and the server has measured them."""
    until_true(page, f"window.veloxsegViewer.edits.length === {count}")
    settled(page)


def total(page: Any) -> float:
    return float(page.locator("#lesions tfoot td").nth(1).inner_text())


def test_a_user_drops_a_zip_looks_corrects_and_downloads(serve, scans, open_page, tmp_path: Path) -> None:
    running = serve()
    with zipfile.ZipFile(tmp_path / "study.zip", "w") as packed:
        for path in scans.values():
            packed.write(path, path.name)
    page = open_page(running.url)
    assert "token" not in page.evaluate("location.href")
    page.set_input_files("#files", tmp_path / "study.zip")
    page.wait_for_selector("button.main", timeout=60_000)  # recognised, and to be confirmed
    page.click("button.main")
    page.wait_for_selector("#lesions tbody tr", timeout=120_000)
    client = Client(running.url)
    (case,) = client.cases()
    lesions = client.statistics(case["id"])["labels"]["label1"]["lesions"]
    before, rows = total(page), len(lesions)
    page.click("#lesions tbody tr")
    assert f"voxel {', '.join(map(str, lesions[0]['voxel']))} " in page.inner_text("#readout").replace(" ·", " ")
    page.keyboard.press("x")
    settled(page, rows - 1)
    assert total(page) == pytest.approx(before - lesions[0]["volume_ml"], abs=0.06)  # as rounded in the table
    page.keyboard.press("u")
    settled(page, rows)
    assert total(page) == pytest.approx(before)
    page.keyboard.press("b")
    box = page.locator("#axial").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    edited(page, 1)
    client.wait(case["id"])
    edits = client.request("GET", f"/api/cases/{case['id']}/edits")["edits"]
    assert [edit["op"] for edit in edits] == ["brush"]
    with page.expect_download() as download:
        page.click("text=NIfTI")
    download.value.save_as(tmp_path / "mask.nii.gz")
    mask = read_label(tmp_path / "mask.nii.gz").array
    assert mask[tuple(edits[0]["voxels"][0])] == 1
    assert "Research use only, not a medical device" in page.inner_text("header")
    assert page.problems == []


@pytest.mark.shared
def test_a_zip_of_a_dicom_study_ends_as_a_seg(
    serve, shared: Path, open_page, tmp_path: Path, quick_model: Path
) -> None:
    """A real study, with its RTSTRUCT: recognised, confirmed, compared; the SEG is what `veloxseg predict` gives."""
    from veloxseg.image import read
    from veloxseg.predict.predictor import segment

    root = shared / "data" / "sts_dicom" / "STS_002"
    study = {name: root / folder / "image" for name, folder in (("ct", "CT"), ("pet", "PET"))}
    with zipfile.ZipFile(tmp_path / "STS_002.zip", "w") as packed:
        for path in sorted(path for folder in ("CT", "PET") for path in (root / folder).rglob("*") if path.is_file()):
            packed.write(path, path.relative_to(root.parent))
    page = open_page(serve().url)
    page.set_input_files("#files", tmp_path / "STS_002.zip")
    page.wait_for_selector("button.main", timeout=60_000)
    picked = page.eval_on_selector_all("#card select", "all => all.map((s) => s.selectedOptions[0].textContent)")
    assert [text.split()[0] for text in picked] == ["CT", "PT"]
    page.click("button.main")
    page.wait_for_selector("#lesions tbody tr", timeout=120_000)
    page.wait_for_selector("#compare strong", timeout=60_000)  # with the contours that came along
    page.click("#lesions tbody tr")
    page.keyboard.press("x")
    page.keyboard.press("u")
    settled(page)
    with page.expect_download(timeout=120_000) as download:
        page.click("text=DICOM SEG", no_wait_after=True)  # it is made when it is asked for
    download.value.save_as(tmp_path / "seg.dcm")
    expected = segment(study, quick_model, threads=1)
    assert np.array_equal(read_label(tmp_path / "seg.dcm", reference=read(study["ct"])).array, expected.array)
    assert page.problems == []


class Hand:
    """Fingers on the glass, at shares of an element's width and height."""

    def __init__(self, page: Any, selector: str) -> None:
        self.line, self.box = page.context.new_cdp_session(page), page.locator(selector).bounding_box()

    def touch(self, kind: str, *fingers: tuple[float, float]) -> None:
        box = self.box
        points = [
            {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"], "id": number}
            for number, (x, y) in enumerate(fingers)
        ]
        self.line.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def take(page: Any, tool: str) -> None:
    """Taps a tool; the browser swallows a tap that comes while it still counts the last one as a fling."""
    for _ in range(10):
        page.tap(f"[data-tool={tool}]")
        if page.evaluate("window.veloxsegViewer.tool") == tool:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{tool} was tapped ten times and not taken")


@pytest.mark.parametrize("size", [(1024, 768), (768, 1024)])
def test_a_tablet(serve, scans, browser: Any, size: tuple[int, int]) -> None:
    """Fingers scroll, zoom and paint; a second finger takes a stroke back; nothing lies outside the screen."""
    running = serve()
    client = Client(running.url)
    case = client.segment(scans.values())
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, has_touch=True)
    page.goto(running.url)
    page.wait_for_selector("#link.on")
    page.tap(f"#list button[data-id='{case}']")
    page.wait_for_selector("#lesions tbody tr")
    look = "window.veloxsegViewer.look.cross[2]"
    page.tap("[data-tool=scroll]")
    before = page.evaluate(look)
    hand = Hand(page, "#axial")
    hand.touch("touchStart", (0.5, 0.3))
    hand.touch("touchMove", (0.5, 0.5))
    hand.touch("touchEnd")
    until_true(page, f"{look} !== {before}")
    take(page, "brush")
    page.tap("#hottest")
    hand.touch("touchStart", (0.4, 0.5))
    hand.touch("touchStart", (0.4, 0.5), (0.6, 0.5))
    hand.touch("touchMove", (0.3, 0.5), (0.7, 0.5))
    hand.touch("touchEnd")
    until_true(page, "Math.abs(window.veloxsegViewer.planes[0].zoom - 2) < 0.2")
    page.wait_for_timeout(500)
    assert client.request("GET", f"/api/cases/{case}/edits")["edits"] == []  # that was no stroke
    hand.touch("touchStart", (0.5, 0.5))
    hand.touch("touchMove", (0.52, 0.5))
    hand.touch("touchEnd")
    edited(page, 1)
    client.wait(case)
    (edit,) = client.request("GET", f"/api/cases/{case}/edits")["edits"]
    assert edit["op"] == "brush"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for selector in (".notice", "#tools", "#reset"):
        box = page.locator(selector).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
        assert box["y"] + box["height"] <= size[1]


def test_what_a_reader_sees_changes_with_the_tools(serve, scans, open_page) -> None:
    """Window by dragging, PET by sliders, mask on, filled and off, other themes: each changes the picture."""
    running = serve()
    case = Client(running.url).segment(scans.values())
    page = open_page(running.url)
    page.click(f"#list button[data-id='{case}']")
    page.wait_for_selector("#lesions tbody tr")
    page.wait_for_timeout(300)
    pictures = [axial(page)]

    def changed() -> None:
        page.wait_for_timeout(150)
        pictures.append(axial(page))
        assert pictures[-1] != pictures[-2]

    box = page.locator("#axial").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    window = page.evaluate("window.veloxsegViewer.look.windows.ct")
    page.keyboard.press("w")
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] + 20)
    page.mouse.up()
    changed()
    low, high = page.evaluate("window.veloxsegViewer.look.windows.ct")
    assert high - low > window[1] - window[0]
    for key in (",", "[", "m", "m", "f"):
        page.keyboard.press(key)
        changed()
    page.select_option("#base", "pet")
    changed()
    turned = page.evaluate("window.veloxsegViewer.projection.number")
    page.click("#turn")
    page.wait_for_timeout(500)
    page.click("#turn")
    assert page.evaluate("window.veloxsegViewer.projection.number") > turned
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    page.click("#theme")
    assert page.evaluate(colour) != dark
    page.keyboard.press("?")
    assert "erase the lesion" in page.inner_text("#help")
    assert page.problems == []


def test_edits_faster_than_the_server_all_count(serve, scans, open_page) -> None:
    """What the server tells of an edit while the next ones are made must not take these away."""
    running = serve()
    client = Client(running.url)
    case = client.segment(scans.values())
    page = open_page(running.url)
    page.click(f"#list button[data-id='{case}']")
    page.wait_for_selector("#lesions tbody tr")
    page.keyboard.press("b")
    box = page.locator("#axial").bounding_box()
    for number in range(12):
        share = 0.3 + 0.03 * number
        page.mouse.click(box["x"] + box["width"] * share, box["y"] + box["height"] * 0.5)
        page.wait_for_timeout(100 + 40 * (number % 4))
    edited(page, 12)
    client.wait(case)
    edits = client.request("GET", f"/api/cases/{case}/edits")["edits"]
    assert len(edits) == 12
    assert len({tuple(edit["voxels"][0]) for edit in edits}) > 6
    assert page.problems == []


def axial(page: Any) -> str:
    return str(page.evaluate("document.getElementById('axial').toDataURL()"))


VALUES = """async ([id, voxels]) => {
  const { loadVolume, fromFile, valueAt } = await import('/page/volume.js');
  const volume = await loadVolume(id);
  return voxels.map((voxel) => volume.layers.map((layer) => valueAt(layer, fromFile(volume.grid, voxel))));
}"""
PIXEL = """async ([id, name, voxel]) => {
  const { loadVolume, fromFile } = await import('/page/volume.js');
  const { PlaneView, blendTable, greyTable } = await import('/page/planes.js');
  const volume = await loadVolume(id), view = new PlaneView(name, document.getElementById(name));
  const base = volume.layers.find((layer) => layer.name === 'ct'), cross = volume.grid.shape.map(() => 0);
  const place = fromFile(volume.grid, voxel), { axis, u, v } = view.plane;
  cross[axis] = place[axis];
  const tables = { ct: greyTable(base, [-1000, 1000]) }, blend = blendTable(0, false);
  view.draw(volume, { cross, base, pet: null, tables, blend, maskOn: false });
  const at = view.place(volume.grid), x = at.x + (place[u] + .5) * at.su, y = at.y + (place[v] + .5) * at.sv;
  return [...view.context.getImageData(Math.floor(x), Math.floor(y), 1, 1).data];
}"""


def test_known_voxels_are_shown_where_they_are(serve, tmp_path: Path, open_page, make_scans) -> None:
    """Bright cubes of different sizes in a flipped and permuted CT: their pixels are white in all three planes."""
    from veloxseg.image import Geometry, Volume, write

    affine = np.array([[0, 0, 2.0, -30], [-2.0, 0, 0, 40], [0, 2.0, 0, 5], [0, 0, 0, 1]])
    volumes = make_scans((48, 40, 36), affine=affine)
    ct = volumes["ct"].array.copy()
    marks = [(10, 12, 9), (40, 20, 30), (25, 33, 5)]
    for x, y, z in marks:
        ct[x - 2 : x + 3, y - 2 : y + 3, z - 2 : z + 3] = 990
    geometry = Geometry(shape=ct.shape, affine=affine)
    write(Volume(array=ct, geometry=geometry), tmp_path / "ct.nii.gz")
    write(volumes["pet"], tmp_path / "pet.nii.gz")
    running = serve()
    case = Client(running.url).segment([tmp_path / "ct.nii.gz", tmp_path / "pet.nii.gz"])
    page = open_page(running.url)
    found = page.evaluate(VALUES, [case, [list(mark) for mark in marks]])
    pet = np.asarray(nibabel.load(tmp_path / "pet.nii.gz").dataobj)
    for mark, values in zip(marks, found, strict=True):
        assert values[0] == pytest.approx(990, abs=0.6)
        assert values[1] == pytest.approx(pet[mark], abs=1e-3)
    page.evaluate("document.getElementById('viewer').hidden = false")
    for plane in ("axial", "coronal", "sagittal"):
        for mark in marks:
            assert page.evaluate(PIXEL, [case, plane, list(mark)])[0] >= 250, (plane, mark)
        away = page.evaluate(PIXEL, [case, plane, [1, 1, 1]])
        assert away[0] < 10
    assert page.problems == []


def test_without_a_token_the_page_asks_and_shows_nothing(serve, browser: Any) -> None:
    running = serve()
    page = browser.new_page()
    page.goto(f"{running.address}/")
    page.wait_for_selector("#login[open]")
    page.fill("#token", running.token)
    page.click("#login button")
    page.wait_for_selector("#link.on")
