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
    page.wait_for_timeout(300)
    settled(page)
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
