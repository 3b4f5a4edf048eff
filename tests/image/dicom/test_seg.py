"""DICOM SEG: round trip on the grid of its series, sparse label maps of dcmqi, grids that do not fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pydicom
import pytest

import veloxseg.image as vio
from support.scan_samples import SHAPE, slice_dataset, write_series
from veloxseg.errors import GeometryError, ImageError, OutputError
from veloxseg.image.dicom.segments import LESIONS, ORGANS, colour_of, segment_description


def labels_of_three() -> np.ndarray:
    labels = np.zeros(SHAPE, np.uint8)
    labels[2:6, 1:4, 1:4] = 1
    labels[0, 0, 0] = 4
    labels[7, 6, 4] = 2
    return labels


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return write_series(tmp_path / "ct series")


def test_round_trip(tmp_path: Path, series: Path) -> None:
    image = vio.read(series)
    labels = replace(image, array=labels_of_three())
    vio.write_dicom_seg(labels, series, tmp_path / "out.dcm", {1: "GTV", 2: "node", 4: "edema"})
    back = vio.read_label(tmp_path / "out.dcm", reference=image)
    assert np.array_equal(back.array, labels.array)
    assert back.geometry.same_grid(image.geometry)
    assert back.header["names"] == {"1": "GTV", "2": "node", "4": "edema"}
    alone = vio.read_label(tmp_path / "out.dcm")  # its own grid leaves out what is empty at the ends
    assert alone.geometry.shape == (8, 7, 5)
    place = np.linalg.inv(image.geometry.affine) @ alone.geometry.affine
    assert np.allclose(place, np.eye(4), atol=1e-4)


def test_label_values_survive_whatever_their_numbers(tmp_path: Path, series: Path) -> None:
    """One segment per value that occurs, numbered without gaps as DICOM wants it, and read back as the values."""
    image = vio.read(series)
    array = np.zeros(SHAPE, np.uint16)
    array[2:6, 1:4, 1:4], array[0, 0, 0], array[7, 6, 4] = 2221, 40, 65535
    vio.write_dicom_seg(
        replace(image, array=array), series, tmp_path / "out.dcm", {40: "spleen", 41: "liver", 2221: "left kidney"}
    )
    written = pydicom.dcmread(tmp_path / "out.dcm")
    assert [s.SegmentNumber for s in written.SegmentSequence] == [1, 2, 3]
    assert [s.SegmentLabel for s in written.SegmentSequence] == ["spleen", "left kidney", "label 65535"]
    assert written.SegmentSequence[1].SegmentDescription == "VeloxSeg label value 2221"
    assert written.SeriesDescription == "VeloxSeg segmentation, research use only"
    back = vio.read_label(tmp_path / "out.dcm", reference=image)
    assert np.array_equal(back.array, array)
    assert back.header["names"] == {"40": "spleen", "2221": "left kidney", "65535": "label 65535"}


def test_segments_of_another_program_are_their_numbers(tmp_path: Path, series: Path) -> None:
    image = vio.read(series)
    labels = replace(image, array=labels_of_three())
    vio.write_dicom_seg(labels, series, tmp_path / "out.dcm", {1: "GTV", 2: "node", 4: "edema"})
    written = pydicom.dcmread(tmp_path / "out.dcm")
    for segment in written.SegmentSequence:
        segment.SegmentDescription = "by hand"
    written.save_as(tmp_path / "other.dcm")
    back = vio.read_label(tmp_path / "other.dcm", reference=image)
    assert np.array_equal(back.array, np.where(labels.array == 4, 3, labels.array))
    for value in ("1", "0", "65536", "12345678901234567890", "²"):
        for segment in written.SegmentSequence:
            segment.SegmentDescription = f"VeloxSeg label value {value}"
        written.save_as(tmp_path / "lies.dcm")
        with pytest.raises(ImageError, match="different label values from 1 to 65535"):
            vio.read_label(tmp_path / "lies.dcm", reference=image)
    for segment in written.SegmentSequence[1:]:  # one of ours, the others by hand: nobody knows which values these have
        segment.SegmentDescription = ""
    written.SegmentSequence[0].SegmentDescription = "VeloxSeg label value 2"
    written.save_as(tmp_path / "some.dcm")
    with pytest.raises(ImageError, match="different label values"):
        vio.read_label(tmp_path / "some.dcm", reference=image)


ABNORMAL, ANATOMY, TISSUE = "49755003", "91723000", "85756007"


@pytest.mark.parametrize(
    ("name", "category", "kind", "region"),
    [
        ("GTV", ABNORMAL, "108369006", None),
        ("lesion", ABNORMAL, "52988006", None),
        ("Liver_Tumour", ABNORMAL, "108369006", "10200004"),
        ("peritumoral edema", ABNORMAL, "79654002", None),
        ("necrosis", ABNORMAL, "6574001", None),
        ("enhancing tumor", ABNORMAL, "C113842", None),
        ("non-enhancing tumor", ABNORMAL, "C81175", None),
        ("Kidneys", ANATOMY, "64033007", None),
        ("kidney_left", ANATOMY, "64033007", None),
        ("spleen", ANATOMY, "78961009", None),
        ("urinary_bladder", ANATOMY, "89837001", None),
        ("gallbladder", ANATOMY, "28231008", None),
        ("hippocampus", ANATOMY, "5366008", None),
        ("lung_upper_lobe_left", ANATOMY, "39607008", None),
        ("Anterior", TISSUE, TISSUE, None),
        ("classification", TISSUE, TISSUE, None),  # no "mass" inside of a word
        ("脳", TISSUE, TISSUE, None),
    ],
)
def test_codes_by_name(name: str, category: str, kind: str, region: str | None) -> None:
    segment = segment_description(1, 7, name)
    assert segment.SegmentedPropertyCategoryCodeSequence[0].CodeValue == category
    assert segment.SegmentedPropertyTypeCodeSequence[0].CodeValue == kind
    regions = segment.get("AnatomicRegionSequence") or []
    assert [code.CodeValue for code in regions] == ([region] if region else [])
    assert len(segment.RecommendedDisplayCIELabValue) == 3


def test_every_code_of_the_tables_is_known_and_every_colour_its_own() -> None:
    for words in (*LESIONS, *ORGANS):
        assert segment_description(1, 1, words).SegmentedPropertyCategoryCodeSequence[0].CodeValue != TISSUE
    assert len({colour_of(value) for value in range(1, 121)}) == 120


def test_it_refers_to_its_series(tmp_path: Path, series: Path) -> None:
    image = vio.read(series)
    vio.write_dicom_seg(replace(image, array=labels_of_three()), series, tmp_path / "out.dcm", {1: "GTV"})
    written = pydicom.dcmread(tmp_path / "out.dcm")
    assert written.Modality == "SEG"
    assert written.ReferencedSeriesSequence[0].SeriesInstanceUID == slice_dataset(0).SeriesInstanceUID
    assert written.FrameOfReferenceUID == slice_dataset(0).FrameOfReferenceUID
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ct series", "out.dcm"]


def test_empty_labels_are_written(tmp_path: Path, series: Path) -> None:
    image = vio.read(series)
    vio.write_dicom_seg(replace(image, array=np.zeros(SHAPE, np.uint8)), series, tmp_path / "out.dcm", {1: "GTV"})
    back = vio.read_label(tmp_path / "out.dcm", reference=image)
    assert not back.array.any()
    assert "empty" in back.warnings[-1]


def test_labels_on_another_grid_are_refused(tmp_path: Path, series: Path) -> None:
    image = vio.read(series)
    affine = image.geometry.affine.copy()
    affine[2, 3] += 5
    moved = replace(image, array=labels_of_three(), geometry=vio.Geometry(shape=SHAPE, affine=affine))
    with pytest.raises(GeometryError, match=r"origin by 5 mm"):
        vio.write_dicom_seg(moved, series, tmp_path / "out.dcm", {1: "GTV"})
    vio.write_dicom_seg(replace(image, array=labels_of_three()), series, tmp_path / "out.dcm", {1: "GTV"})
    affine[:3, 3] += 0.7  # moved shares it
    with pytest.raises(GeometryError, match="different grids"):
        vio.read_label(
            tmp_path / "out.dcm", reference=replace(moved, geometry=vio.Geometry(shape=SHAPE, affine=affine))
        )
    with pytest.raises(OutputError, match="at least one segment"):
        vio.write_dicom_seg(replace(image, array=np.zeros(SHAPE, np.uint8)), series, tmp_path / "no.dcm", {})
    assert not (tmp_path / "no.dcm").exists()


def test_a_seg_is_no_image_and_an_image_no_label(tmp_path: Path, series: Path) -> None:
    image = vio.read(series)
    vio.write_dicom_seg(replace(image, array=labels_of_three()), series, tmp_path / "out.dcm", {1: "GTV"})
    with pytest.raises(ImageError, match="no DICOM images"):
        vio.read(tmp_path / "out.dcm")
    with pytest.raises(ImageError, match="modality CT, expected SEG or RTSTRUCT"):
        vio.read_label(next(series.iterdir()))
    with pytest.raises(ImageError, match="6 DICOM files, expected one"):
        vio.read_label(series)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["noppv", "ppv5"])
def test_sparse_label_maps_of_dcmqi_equal_their_nrrd(shared: Path, name: str) -> None:
    """The middle slice is not stored; with a padding value of 5 dcmqi fills it with 5, and so do we."""
    folder = shared / "data/nasty/dcmqi_seg"
    ours = vio.read_label(folder / f"sparse-labelmap-{name}.dcm")
    theirs = vio.read_label(folder / f"sparse_labelmap_{name}_seg.nrrd")
    assert np.array_equal(ours.array, theirs.array)
    assert ours.geometry.distance(theirs.geometry) < 1e-4
    assert bool(ours.warnings) == (name == "ppv5")


def test_anonymised_series(tmp_path: Path) -> None:
    """Emptied patient tags are no obstacle, emptied UIDs are."""
    made = [slice_dataset(z) for z in range(SHAPE[2])]
    for one in made:
        for keyword in ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyDate"):
            delattr(one, keyword)
    series = write_series(tmp_path / "anonymous", made)
    labels = replace(vio.read(series), array=labels_of_three())
    vio.write_dicom_seg(labels, series, tmp_path / "out.dcm", {1: "GTV"})
    assert np.array_equal(vio.read_label(tmp_path / "out.dcm", reference=labels).array, labels.array)
    series = write_series(tmp_path / "empty", [slice_dataset(z, SeriesInstanceUID="") for z in range(SHAPE[2])])
    with pytest.raises(OutputError, match="has no SeriesInstanceUID"):
        vio.write_dicom_seg(replace(labels, header={}), series, tmp_path / "no.dcm", {1: "GTV"})
    assert not (tmp_path / "no.dcm").exists()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["dcmqi_seg/24x38x3/multiframe/mf.dcm", "niivue_tests/enh.dcm"])
@pytest.mark.parametrize("backwards", [False, True])
def test_round_trip_on_enhanced_multiframe(shared: Path, tmp_path: Path, name: str, backwards: bool) -> None:
    """Whichever way the frames are stored, slices are stacked along the normal."""
    source = tmp_path / "enhanced.dcm"
    dataset = pydicom.dcmread(shared / "data/nasty" / name)
    if backwards:
        pixels = dataset.pixel_array[::-1]
        dataset.PixelData = pixels.tobytes()
        dataset.PerFrameFunctionalGroupsSequence = list(dataset.PerFrameFunctionalGroupsSequence)[::-1]
    dataset.save_as(source)
    image = vio.read(source)
    original = vio.read(shared / "data/nasty" / name)
    assert np.array_equal(image.array, original.array)
    labels = np.zeros(image.array.shape, np.uint8)
    labels[3:7, 5:9, 1] = 1
    labels[10:12, 2:20, -1] = 2
    vio.write_dicom_seg(replace(image, array=labels), source, tmp_path / "out.dcm", {1: "a", 2: "b"})
    back = vio.read_label(tmp_path / "out.dcm", reference=original)
    assert np.array_equal(back.array, labels)


@pytest.mark.shared
def test_series_without_frame_of_reference(shared: Path, tmp_path: Path) -> None:
    source = shared / "data/nasty/dicom2nifti_tests/philips_enhanced/anatomical/001"
    labels = replace(vio.read(source), array=np.ones((256, 256, 8), np.uint8))
    with pytest.raises(OutputError, match="has no FrameOfReferenceUID"):
        vio.write_dicom_seg(labels, source, tmp_path / "out.dcm", {1: "a"})
    assert not list(tmp_path.iterdir())


@pytest.mark.shared
def test_real_series_on_the_grid_of_its_segmentation(shared: Path) -> None:
    """A JPEG 2000 series without UIDs; its segmentation is stored with another direction of the rows."""
    series = vio.read_header(shared / "data/ct_many_labels/example_ct_dicom")
    label = vio.read_header(shared / "data/ct_many_labels/example_seg_dicom.nii.gz")
    assert series.shape == label.shape == (512, 512, 20)
    first, last = series.affine @ [0, 511, 0, 1], series.affine @ [0, 0, 0, 1]
    assert np.allclose(label.affine @ [0, 0, 0, 1], first, atol=1e-3)
    assert np.allclose(label.affine @ [0, 511, 0, 1], last, atol=1e-3)
