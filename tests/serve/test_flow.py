"""A case from upload to mask, edits and files, with the workers' functions in this process."""

import json
import zipfile
from pathlib import Path

import nibabel
import numpy as np
import pytest

from veloxseg.files import sha256
from veloxseg.image import read_label
from veloxseg.predict.predictor import segment
from veloxseg.serve import cases, jobs
from veloxseg.serve.store import Store
from veloxseg.serve.work import Bench


def result_folder(store: Store, case: str) -> Path:
    return cases.folder_of_revision(store, cases.case_row(store, case))


@pytest.fixture
def done(add_case, work, scans) -> str:
    case = add_case({path.name: path for path in scans.values()})
    work()
    return case


def test_a_case_goes_from_files_to_the_mask_that_predict_gives(
    done, store, state, scans, model, tmp_path: Path
) -> None:
    told = state(done)
    assert (told["state"], told["message"], told["revision"]) == ("done", "", 0)
    assert set(told["chosen"]) == {"ct", "pet"}
    segment(scans, model, threads=1).save(tmp_path / "plain.nii.gz")
    assert sha256(result_folder(store, done) / "mask.nii.gz") == sha256(tmp_path / "plain.nii.gz")


def test_a_zip_is_a_case(add_case, work, state, scans, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "study.zip", "w") as archive:
        for path in scans.values():
            archive.write(path, f"some/where/{path.name}")
        archive.writestr("readme.txt", "nothing")
    case = add_case({"study.zip": tmp_path / "study.zip"})
    work()
    assert state(case)["state"] == "done"


def test_a_missing_modality_is_told_by_name(add_case, work, state, scans) -> None:
    case = add_case({"CT_image.nii.gz": scans["ct"]})
    work()
    told = state(case)
    assert told["state"] == "incomplete"
    assert "pet is missing" in told["message"]


def test_two_scans_of_one_kind_are_never_guessed_about(add_case, work, state, scans) -> None:
    case = add_case({"ct.nii.gz": scans["ct"], "pet_a.nii.gz": scans["pet"], "pet_b.nii.gz": scans["pet"]})
    work()
    told = state(case)
    assert told["state"] == "choose"
    assert "2 scans could be the pet" in told["message"]


def test_a_case_waits_for_the_users_word_if_asked_to(add_case, work, state, scans) -> None:
    case = add_case({path.name: path for path in scans.values()}, confirm=True)
    work()
    told = state(case)
    assert told["state"] == "choose"
    assert set(told["chosen"]) == {"ct", "pet"}


def test_what_cannot_be_read_fails_with_one_line_without_our_paths(add_case, work, state, scans, store) -> None:
    broken = scans["pet"].with_name("broken_pet.nii.gz")
    broken.write_bytes(scans["pet"].read_bytes()[:900])
    case = add_case({"ct.nii.gz": scans["ct"], "pet.nii.gz": broken})
    work()
    told = state(case)
    assert told["state"] in ("failed", "incomplete")
    assert "ends early" in told["message"]
    assert str(store.folder) not in json.dumps(told)


def edit(store: Store, case: str, edits: list[dict[str, object]]) -> None:
    with store.write() as connection:
        jobs.enqueue(connection, case, "revise", edits=edits)


def statistics(store: Store, case: str) -> dict[str, object]:
    return json.loads((result_folder(store, case) / "statistics.json").read_text())["labels"]["label1"]


def test_erasing_a_lesion_lowers_the_totals_by_it_and_undo_brings_it_back(done, store, work, state) -> None:
    before = statistics(store, done)
    lesion = before["lesions"][0]
    edit(store, done, [{"op": "erase", "voxel": lesion["voxel"]}])
    work()
    after = statistics(store, done)
    assert after["count"] == before["count"] - 1
    assert after["volume_ml"] == pytest.approx(before["volume_ml"] - lesion["volume_ml"], abs=1e-3)
    record = json.loads((result_folder(store, done) / "record.json").read_text())
    assert record["mask_by"] == "the model, edited by hand"
    assert record["edits"][0]["op"] == "erase"
    edit(store, done, [])
    work()
    assert statistics(store, done) == before
    assert state(done)["revision"] == 2


def test_a_brush_adds_a_sphere_in_millimetres(done, store, work) -> None:
    edit(store, done, [{"op": "brush", "voxels": [[5, 5, 5]], "radius_mm": 4.1, "label": 1}])
    work()
    mask = read_label(result_folder(store, done) / "mask.nii.gz").array
    index = np.indices(mask.shape) - np.array([5, 5, 5])[:, None, None, None]
    assert (mask[((index * 2.0) ** 2).sum(0) <= 4.1**2] == 1).all()


def test_a_wrong_edit_leaves_the_mask_as_it_is(done, store, work, state) -> None:
    edit(store, done, [{"op": "erase", "voxel": [999, 0, 0]}])
    work()
    assert state(done)["revision"] == 0
    assert state(done)["state"] == "done"
    (job,) = store.read("SELECT * FROM jobs WHERE kind = 'revise'")
    assert job["state"] == "failed"
    assert "outside the mask" in job["message"]


def test_a_mask_among_the_files_is_compared(add_case, work, store, scans, model, tmp_path: Path) -> None:
    segment(scans, model, threads=1).save(tmp_path / "truth_mask.nii.gz")
    case = add_case(
        {**{path.name: path for path in scans.values()}, "truth_mask.nii.gz": tmp_path / "truth_mask.nii.gz"}
    )
    work()
    compared = json.loads((result_folder(store, case) / "compare.json").read_text())
    assert compared["labels"]["label1"]["dice"] == 1.0
    assert compared["labels"]["label1"]["false_positive_ml"] == 0


def test_a_report_is_made_when_asked_for(done, store, work) -> None:
    with store.write() as connection:
        jobs.enqueue(connection, done, "write", name="report.html")
    work()
    page = (result_folder(store, done) / "report.html").read_text()
    assert "Research use only, not a medical device" in page
    assert "data:image/png;base64," in page


def test_a_picture_is_not_called_by_the_name_of_a_temporary_file(done, store, work, monkeypatch) -> None:
    titles = []
    monkeypatch.setattr(
        "veloxseg.predict.preview.draw", lambda *_, title: titles.append(title) or _[3].write_bytes(b"x")
    )
    for name in ("preview.png", "report.html"):
        with store.write() as connection:
            jobs.enqueue(connection, done, "write", name=name)
    work()
    assert titles == ["mask by the model"]


def test_a_worker_that_died_leaves_its_job_to_the_next(add_case, work, store, bench: Bench, state, scans) -> None:
    case = add_case({path.name: path for path in scans.values()})
    lost = jobs.take(store, "desk", "the dead")
    assert lost is not None
    jobs.release(store, "desk")
    work()
    assert state(case)["state"] == "done"
    with store.write() as connection:
        assert not jobs.finish(connection, lost)  # a late answer of the dead does not count


def test_a_case_that_ends_every_worker_fails_in_the_end(add_case, store, state, scans) -> None:
    case = add_case({path.name: path for path in scans.values()})
    for _ in range(jobs.MOST_ATTEMPTS):
        assert jobs.take(store, "desk", "unlucky") is not None
        jobs.release(store, "desk")
    assert jobs.take(store, "desk", "unlucky") is None
    assert "the worker died 10 times" in state(case)["message"]


def test_a_server_that_died_is_not_counted_against_a_case(add_case, store, state, scans, work) -> None:
    case = add_case({path.name: path for path in scans.values()})
    for _ in range(jobs.MOST_ATTEMPTS + 1):
        assert jobs.take(store, "desk", "of the dead server") is not None
        jobs.recover(store)
    work()
    assert state(case)["state"] == "done"


def test_the_page_gets_every_voxel_in_its_place(done, store, make_scans) -> None:
    """The page's axes run to the left, the back and the feet; a known voxel is found there by axes and flips."""
    import gzip

    folder = result_folder(store, done)
    view = json.loads((folder.parent / "view" / "view.json").read_text())
    grid = view["grid"]
    numbers = np.frombuffer(gzip.decompress((folder / "mask.view.gz").read_bytes()), np.uint8)
    shown = numbers.reshape(grid["shape"][::-1]).T  # x fastest
    mask = read_label(folder / "mask.nii.gz").array
    turned = mask.transpose(grid["axes"])
    turned = turned[tuple(slice(None, None, -1 if flip else 1) for flip in grid["flips"])]
    assert np.array_equal(shown, turned)
    (pet,) = (one for one in view["scans"] if one["name"] == "pet")
    stored = np.frombuffer(gzip.decompress((folder.parent / "view" / "pet.view.gz").read_bytes()), "<u2")
    values = stored.reshape(pet["shape"][::-1]).T * pet["slope"] + pet["intercept"]
    expected = make_scans((48, 40, 30))["pet"].array[::-1, ::-1, ::-1]
    assert np.abs(values - expected).max() <= pet["slope"]


def test_a_pet_on_its_own_grid_is_placed_in_millimetres(tmp_path: Path, make_scans) -> None:
    from veloxseg.image import Geometry, Volume
    from veloxseg.serve.viewer import place_of

    ct = Geometry(shape=(40, 40, 40), affine=np.diag([2.0, 2.0, 2.0, 1.0]))
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    affine[:3, 3] = (8, 4, 2)
    pet = Geometry(shape=(10, 12, 14), affine=affine)
    place = place_of(pet, ct)
    # the page's first voxel is the highest corner of the file: (78, 78, 78) mm of the CT, (44, 48, 54) of the PET
    assert place["offset"] == pytest.approx([34, 30, 24])
    assert Volume(array=np.zeros(pet.shape), geometry=pet).geometry.spacing == (4, 4, 4)


def test_the_projection_shows_a_hot_spot_from_every_side() -> None:
    from veloxseg.serve.viewer import DIRECTIONS, rotating_projection

    array = np.zeros((21, 31, 5), np.float32)
    array[4, 20, 2] = 7
    views = rotating_projection(array, (3.0, 2.0), 3.0)
    assert views.shape[0] == DIRECTIONS
    assert (views.max(axis=(1, 2)) == 7).all()
    x, y = (4 - 10) * 3.0, (20 - 15) * 2.0
    for number in range(DIRECTIONS):
        angle = 2 * np.pi * number / DIRECTIONS
        column = (views.shape[2] - 1) / 2 + (x * np.cos(angle) + y * np.sin(angle)) / 3
        assert abs(int(views[number, 2].argmax()) - column) <= 1.5


def test_files_beside_the_mask_name_no_path(done, store) -> None:
    for path in result_folder(store, done).rglob("*.json"):
        assert str(store.folder) not in path.read_text()


def test_scans_given_by_channel_number_are_recognised(add_case, work, state, scans) -> None:
    case = add_case({"x_0000.nii.gz": scans["ct"], "x_0001.nii.gz": scans["pet"]})
    work()
    assert state(case)["state"] == "done"


def test_an_image_without_a_telling_name_is_for_the_user_to_name(add_case, work, state, scans) -> None:
    case = add_case({"a.nii.gz": scans["ct"], "b.nii.gz": scans["pet"]})
    work()
    told = state(case)
    assert told["state"] == "choose"
    assert len(told["found"]) == 2


def test_nothing_to_see_is_told(add_case, work, state, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("hello")
    case = add_case({"notes": tmp_path / "notes"})
    work()
    assert "none of the files is an image" in state(case)["message"]


def test_the_mask_keeps_the_grid_of_the_scan(done, store, scans: dict[str, Path]) -> None:
    one, other = nibabel.load(scans["ct"]), nibabel.load(result_folder(store, done) / "mask.nii.gz")
    assert np.array_equal(one.affine, other.affine)
