"""From scans to a mask on the scans' own grid, with its provenance."""

from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from nibabel.orientations import axcodes2ornt, inv_ornt_aff, io_orientation, ornt_transform

import veloxseg
from veloxseg.errors import ConfigError, DatasetError, GeometryError, OutputError
from veloxseg.files import read_json, sha256
from veloxseg.image import Geometry, Volume, read, read_label, write
from veloxseg.predict.postprocess import keep_largest, remove_smaller
from veloxseg.predict.predictor import Options, Predictor
from veloxseg.predict.scans import Scans
from veloxseg.runtimes.native.runtime import is_built


@pytest.fixture(scope="module")
def predictor(exported) -> Predictor:
    return Predictor([exported["openvino"]], threads=1, options=Options())


@pytest.fixture(scope="module")
def reference(predictor, make_scans) -> np.ndarray:
    labels = predictor(Scans(make_scans())).array
    assert 0 < labels.mean() < 1
    return labels


def turned(volume: Volume, code: str) -> Volume:
    """The same scan with its axes stored another way."""
    turn = ornt_transform(io_orientation(volume.geometry.affine), axcodes2ornt(code))
    array = nibabel.orientations.apply_orientation(volume.array, turn)
    affine = volume.geometry.affine @ inv_ornt_aff(turn, volume.array.shape)
    return Volume(array=array, geometry=Geometry(shape=array.shape, affine=affine))


@pytest.mark.parametrize("code", ["LPS", "SAR", "PIR"])
def test_the_mask_lies_on_the_scan_whatever_way_it_is_stored(code, predictor, make_scans, reference):
    scans = {name: turned(volume, code) for name, volume in make_scans().items()}
    result = predictor(Scans(scans))
    assert result.geometry.same_grid(scans["ct"].geometry)
    assert result.array.shape == scans["ct"].array.shape
    back = turned(Volume(array=result.array, geometry=result.geometry), "RAS")
    assert (back.array == reference).all()


def test_segment_takes_paths_nibabel_and_simpleitk(exported, case, make_scans, reference):
    import SimpleITK

    model = exported["openvino"]
    objects = [
        {name: str(path) for name, path in case.items()},
        {name: nibabel.load(path) for name, path in case.items()},
        {name: SimpleITK.ReadImage(str(path)) for name, path in case.items()},
    ]
    for images in objects:
        result = veloxseg.segment(images, model=model, threads=1)
        assert (result.array == reference).all()
        np.testing.assert_allclose(result.to_nibabel().affine, make_scans()["ct"].geometry.affine, atol=1e-5)
        assert result.to_simpleitk().GetSpacing() == pytest.approx((2.0, 2.0, 2.0))


def test_the_saved_mask_and_its_provenance_can_be_traced(predictor, case, tmp_path, reference, model):
    result = predictor(Scans(case))
    result.save(tmp_path / "mask ü.nii.gz")
    mask, scan = read_label(tmp_path / "mask ü.nii.gz"), read(case["ct"])
    assert mask.geometry.same_grid(scan.geometry)
    assert (mask.array == reference).all()
    record = read_json(tmp_path / "mask ü.json")
    assert record["notice"] == "research use only, not a medical device"
    assert record["inputs"]["pet"] == {"file": "pet.nii.gz", "sha256": sha256(case["pet"])}
    assert record["models"][0]["weights_sha256"] == sha256(model / "model.safetensors")
    assert record["volumes_ml"]["label1"] == pytest.approx(reference.sum() * 0.008)
    assert record["runtime"] == {"name": "openvino", "threads": 1}
    assert record["geometry"]["output"]["shape"] == list(scan.array.shape)
    assert {"software", "options", "plan", "warnings", "seconds", "peak_memory_mb"} <= record.keys()
    with pytest.raises(OutputError, match="DICOM series"):
        result.save(tmp_path / "mask.dcm")


def test_images_smaller_than_the_patch_and_other_spacings_work(predictor, make_scans):
    small = {name: v.array[20:50, 20:45, 10:30] for name, v in make_scans().items()}
    affine = np.diag([1.3, 2.9, 2.2, 1.0])
    grid = Geometry(shape=(30, 25, 20), affine=affine)
    result = predictor(Scans({name: Volume(array=a, geometry=grid) for name, a in small.items()}))
    assert result.array.shape == (30, 25, 20)


def test_probabilities_follow_the_mask(exported, make_scans, reference, tmp_path):
    result = veloxseg.segment(make_scans(), model=exported["openvino"], threads=1, probabilities=True)
    probability = result.probabilities["label1"]
    assert (reference[probability > 128] == 1).all()
    assert (reference[probability < 127] == 0).all()
    result.save(tmp_path / "mask.nii.gz")
    assert read(tmp_path / "mask_label1_probability.nii.gz").array.max() <= 1


def test_a_fold_twice_is_the_fold_and_other_plans_are_refused(
    exported, make_scans, reference, write_model, make_plan, tmp_path
):
    both = [exported["openvino"], exported["onnx"]]
    twice = Predictor([both[0], both[0]], threads=1)
    assert twice.runtime.name == "openvino x 2"
    assert (twice(Scans(make_scans())).array == reference).all()
    other = write_model(tmp_path / "other", make_plan(2, spacing=(3.0, 3.0, 3.0)))
    with pytest.raises(ConfigError, match="differ in spacing"):
        Predictor([both[0], other])


def test_missing_modalities(predictor, make_scans, write_model, make_plan, tmp_path):
    ct_only = {"ct": make_scans()["ct"]}
    with pytest.raises(DatasetError, match="modality pet is missing"):
        predictor(Scans(ct_only))
    with pytest.raises(DatasetError, match="mr is unknown"):
        predictor(Scans({**make_scans(), "mr": ct_only["ct"]}))
    trained = write_model(tmp_path / "trained", make_plan(), missing_modalities=["pet"])
    result = veloxseg.segment(ct_only, model=trained, runtime="torch", threads=1)
    assert result.array.shape == ct_only["ct"].array.shape
    assert any("pet is missing" in text for text in result.warnings)
    with pytest.raises(DatasetError, match="ct is missing"):
        veloxseg.segment({"pet": make_scans()["pet"]}, model=trained, runtime="torch")


def test_scans_that_do_not_touch_are_refused(predictor, make_scans):
    far = np.diag([2.0, 2.0, 2.0, 1.0])
    far[0, 3] = 500
    with pytest.raises(GeometryError, match="mm apart"):
        predictor(Scans({"ct": make_scans()["ct"], "pet": make_scans(affine=far)["pet"]}))


def test_memory_is_estimated_and_kept(exported, case, reference, monkeypatch):
    enough = Predictor([exported["openvino"]], threads=1, options=Options(max_ram=2.0))
    expected = enough.estimate(Scans(case))
    assert expected.frugal_gib <= expected.gib < 2
    assert expected.seconds > 0
    # between the two figures, which differ for large cases, the scans are read one at a time, with the same result
    monkeypatch.setattr(enough, "estimate", lambda scans: replace(expected, frugal_bytes=expected.bytes / 2))
    enough.options = Options(max_ram=0.75 * expected.gib)
    scans = Scans(case)
    assert (enough(scans).array == reference).all()
    assert scans.frugal
    with pytest.raises(ConfigError, match=r"--max-ram allows 0\.1"):
        Predictor([exported["openvino"]], threads=1, options=Options(max_ram=0.1))(Scans(case))


def test_post_processing_counts_in_millilitres():
    labels = np.zeros((20, 20, 20), np.uint8)
    labels[1:3, 1:3, 1:3] = 1  # 8 voxels
    labels[10:14, 10:14, 10:14] = 1  # 64 voxels
    labels[17:19, 17:19, 17] = 2  # 4 voxels
    kept = labels.copy()
    assert remove_smaller(kept, 0.01, 0.001) == 2  # 10 voxels
    assert (kept > 0).sum() == 64
    exact = labels.copy()
    assert remove_smaller(exact, 0.008, 0.001) == 1  # a component of exactly that volume stays
    assert keep_largest(labels) == 1
    assert (labels == 1).sum() == 64
    assert (labels == 2).sum() == 4


@pytest.mark.shared
def test_a_real_dicom_pet_gives_a_dicom_seg(shared: Path, write_model, make_plan, tmp_path):
    """STS_001 of soft-tissue sarcoma: raw PET slices; one modality is enough for the way there and back."""
    folder = next(path for path in sorted((shared / "data" / "pet_raw_dicom").rglob("*")) if any(path.glob("*.dcm")))
    plan = make_plan()
    plan = make_plan(2, modalities=plan.modalities[1:], reference="pet", spacing=(8.0, 8.0, 8.0))
    model = write_model(tmp_path / "model", plan)
    result = veloxseg.segment({"pet": folder}, model=model, runtime="torch", threads=1, overlap=0.0)
    result.save(tmp_path / "seg.dcm")
    scan = read(folder)
    back = read_label(tmp_path / "seg.dcm", reference=scan)
    assert back.geometry.same_grid(scan.geometry)
    assert (back.array == result.array).all()


def test_cached_volumes_can_be_written_as_they_came(predictor, make_scans, tmp_path):
    files = {}
    for name, volume in make_scans().items():
        files[name] = tmp_path / f"{name}.nrrd"
        write(volume, files[name])
    result = predictor(Scans(files))
    assert result.labels.file_type == "nrrd"


def test_swapped_modalities_are_refused(predictor, make_scans):
    scans = make_scans()
    with pytest.raises(DatasetError, match="look swapped"):
        predictor(Scans({"ct": scans["pet"], "pet": scans["ct"]}))


@pytest.mark.shared
def test_a_real_case_has_the_same_labels_in_every_runtime(shared: Path, write_model, make_plan, tmp_path):
    """A sarcoma of STS with its PET/CT, at 8 mm so that it takes seconds."""
    folder = sorted((shared / "data" / "sts_petct").glob("STS_*"))[0]
    files = {"ct": folder / "CT_image.nii.gz", "pet": folder / "PET_image.nii.gz"}
    model = write_model(tmp_path / "model", make_plan(2, spacing=(8.0, 8.0, 8.0)))
    masks = {
        runtime: veloxseg.segment(files, model=model, runtime=runtime, threads=1).array
        for runtime in ("torch", "openvino", *(["native"] if is_built() else []))
    }
    assert masks["torch"].any()
    assert all((mask == masks["torch"]).mean() >= 0.9999 for mask in masks.values())


def test_a_path_alone_is_no_case() -> None:
    with pytest.raises(DatasetError, match=r"file\.nii\.gz is no case; give scans by modality"):
        veloxseg.segment("file.nii.gz", model="nowhere")  # type: ignore[arg-type]
