"""Files from other projects' test suites: each reads with a geometry that was verified, or gives its one line.

Verified: the geometry of NIfTI and NRRD files equals what nibabel and SimpleITK say (asserted below), that of DICOM
what the tags and the ground truth beside them say.
"""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk

import veloxseg.image as vio
from veloxseg.errors import GeometryError, ImageError
from veloxseg.image.itk import geometry_of_simpleitk

pytestmark = pytest.mark.shared

D2N, NIB, JS, VUE, QI = ("dicom2nifti_tests/", "nibabel_tests/", "nifti_reader_js/", "niivue_tests/", "dcmqi_seg/")

READS = {  # path: (shape, spacing, orientation of the axes)
    QI + "23x38x3/image": ((23, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "23x38x3/multiframe": ((23, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "23x38x3/nrrd/label.nrrd": ((23, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "24x38x3/image": ((24, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "24x38x3/multiframe": ((24, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "24x38x3/nrrd/label.nrrd": ((24, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "sparse_labelmap_noppv_seg.nrrd": ((24, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    QI + "sparse_labelmap_ppv5_seg.nrrd": ((24, 38, 3), (0.7, 0.7, 2.5), "LPS"),
    D2N + "failing/slicecount/001": ((256, 256, 2), (1, 1, 1), "PIR"),
    D2N + "failing/slicecount/001_ground_truth.nii.gz": ((256, 256, 2), (1, 1, 1), "PIL"),
    D2N + "failing/slicecount/001_ground_truth_reoriented.nii.gz": ((2, 256, 256), (1, 1, 1), "LAS"),
    D2N + "generic/anatomical/002_non_isotropic": ((64, 28, 4), (6.4, 4, 0.5), "LPS"),
    D2N + "generic/compressed_j2k/001": ((256, 256, 4), (1, 1, 1), "PIR"),
    D2N + "generic/compressed_jpeg/001": ((256, 256, 4), (1, 1, 1), "PIR"),
    D2N + "generic/compressed_jpegls/001": ((256, 256, 4), (1, 1, 1), "PIR"),
    D2N + "generic/compressed_rle/001": ((256, 256, 4), (1, 1, 1), "PIR"),
    D2N + "generic/compressed_rle/001_ground_truth.nii.gz": ((256, 256, 4), (1, 1, 1), "PIL"),
    D2N + "philips_enhanced/anatomical/001": ((256, 256, 8), (1, 1, 1.2), "PIR"),
    NIB + "anatomical.nii": ((33, 41, 25), (2, 2, 2), "LAS"),
    NIB + "reoriented_anat_moved.nii": ((21, 26, 22), (4, 4, 4), "RAS"),
    NIB + "standard.nii.gz": ((4, 5, 7), (1, 3, 2), "RAS"),
    JS + "air.hdr.gz": ((79, 67, 64), (2.39, 2.366, 2.385), "AIR"),
    JS + "air.img.gz": ((79, 67, 64), (2.39, 2.366, 2.385), "AIR"),
    JS + "air2.hdr.gz": ((79, 67, 64), (2.39, 2.366, 2.385), "AIR"),
    JS + "air2.img.gz": ((79, 67, 64), (2.39, 2.366, 2.385), "AIR"),
    JS + "avg152T1_LR_nifti2.nii.gz": ((91, 109, 91), (2, 2, 2), "LAS"),
    JS + "big.nii.gz": ((64, 64, 21), (4, 4, 6), "LAS"),
    JS + "little.nii.gz": ((64, 64, 21), (4, 4, 6), "LAS"),
    JS + "with_extension.nii.gz": ((161, 191, 151), (1, 1, 1), "LPI"),
    VUE + "FLAIR.nrrd": ((124, 160, 140), (1, 1, 1), "RAS"),
    VUE + "enh.dcm": ((64, 64, 6), (3.375, 3.375, 2.4), "LPS"),
    VUE + "hippo.nii.gz": ((91, 109, 91), (2, 2, 2), "LAS"),
    VUE + "ras.hdr": ((62, 41, 34), (2.385, 2.39, 2.366), "RAS"),
    VUE + "ras.img": ((62, 41, 34), (2.385, 2.39, 2.366), "RAS"),
}
SIZE_OF = {"L": 64, "R": 64, "A": 79, "P": 79, "S": 67, "I": 67}
MILLIMETRES_OF = {"L": 2.385, "R": 2.385, "A": 2.39, "P": 2.39, "S": 2.366, "I": 2.366}
for code in ("ASR", "ILP", "IPL", "LAS", "LIA", "LPS", "PIL", "PRS", "RAS", "RPI", "SAR", "SRA"):
    shape, spacing = tuple(SIZE_OF[c] for c in code), tuple(MILLIMETRES_OF[c] for c in code)
    READS[f"{VUE}nifti_space/{code}.nii.gz"] = (shape, spacing, code)

UNKNOWN = "not an image of a known type"
REFUSED = {  # path: (error, words of its message)
    QI + "sparse-labelmap-noppv.dcm": (ImageError, "no DICOM images"),  # a label map: see test_dicomseg
    QI + "sparse-labelmap-ppv5.dcm": (ImageError, "no DICOM images"),
    D2N + "failing/gantrytilting/001": (
        GeometryError,
        "tilted: slices are shifted against each other by 14.00 degrees",
    ),
    D2N + "failing/sliceincrement/001": (GeometryError, "1 slice is missing: the gap after slice 3 of 4 is 10 mm"),
    D2N + "failing/sliceorientation/001": (GeometryError, "mixed orientations in one series: 2 of 4 slices"),
    D2N + "generic/rgb/001": (ImageError, "RGB"),
    NIB + "0.dcm": (ImageError, "one slice of a DICOM series"),
    NIB + "1.dcm": (ImageError, "one slice of a DICOM series"),
    NIB + "analyze.hdr": (ImageError, "Analyze"),
    NIB + "bad_attribute+orig.HEAD": (ImageError, UNKNOWN),
    NIB + "bad_datatype+orig.HEAD": (ImageError, UNKNOWN),
    NIB + "example4d+orig.BRIK.gz": (ImageError, UNKNOWN),
    NIB + "example4d+orig.HEAD": (ImageError, UNKNOWN),
    NIB + "example4d.nii.gz": (ImageError, "4-D, with 2 volumes"),
    NIB + "example_nifti2.nii.gz": (ImageError, "4-D, with 2 volumes"),
    NIB + "functional.nii": (ImageError, "4-D, with 20 volumes"),
    NIB + "nifti1.hdr": (ImageError, "expected nifti1.img beside it"),
    NIB + "nifti2.hdr": (ImageError, "expected nifti2.img beside it"),
    NIB + "resampled_anat_moved.nii": (ImageError, "153 NaN and 0 Inf among 1071 voxels"),
    NIB + "row_major.dconn.nii": (ImageError, "2-D"),
    NIB + "scaled+tlrc.BRIK": (ImageError, UNKNOWN),
    NIB + "scaled+tlrc.HEAD": (ImageError, UNKNOWN),
    NIB + "test.mgz": (ImageError, UNKNOWN),
    NIB + "tinypet.v": (ImageError, UNKNOWN),
    JS + "5D_small.nii": (ImageError, "2-D image (1 × 2 × 3 × 1 × 3)"),
    JS + "5D_zeros.nii.gz": (ImageError, "4-D, with 3 volumes"),
    JS + "not-nifti.nii": (ImageError, UNKNOWN),
    VUE + "RAS.mif": (ImageError, UNKNOWN),
    VUE + "complex_image.nii.gz": (ImageError, "complex voxels"),
    VUE + "ct_perfusion.nii.gz": (ImageError, "RGB voxels"),
}
for name in ("minc1-no-att", "minc1_1_scale", "minc1_4d", "minc2-4d-d", "minc2-no-att", "minc2_1_scale", "minc2_4d"):
    REFUSED[f"{NIB}{name}.mnc"] = (ImageError, UNKNOWN)
for name in ("minc2_baddim", "small", "tiny"):
    REFUSED[f"{NIB}{name}.mnc"] = (ImageError, UNKNOWN)
for name in ("phantom_EPI_asc_CLEAR_2_1", "phantom_truncated", "phantom_varscale"):
    REFUSED[f"{NIB}{name}.PAR"] = REFUSED[f"{NIB}{name}.REC"] = (ImageError, UNKNOWN)


def test_no_file_is_left_out(shared: Path) -> None:
    """Every file of the corpus is in a table, itself or through its DICOM folder."""
    nasty = shared / "data/nasty"
    for path in nasty.rglob("*"):
        if path.is_file():
            names = {path.relative_to(nasty).as_posix(), path.parent.relative_to(nasty).as_posix()}
            assert names & (READS.keys() | REFUSED.keys()), path


@pytest.mark.parametrize("name", sorted(READS))
def test_reads_with_its_geometry(shared: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = shared / "data/nasty" / name
    scan = vio.read(path)
    shape, spacing, code = READS[name]
    assert scan.geometry.shape == scan.array.shape == shape
    assert scan.geometry.spacing == pytest.approx(spacing, abs=6e-4)
    assert "".join(nib.aff2axcodes(scan.geometry.affine)) == code
    assert vio.read_header(path).same_grid(scan.geometry)
    if ".nii" in name or ".hdr" in name:
        image = nib.load(path)
        assert np.allclose(scan.geometry.affine, image.affine, atol=1e-5)
        assert np.allclose(scan.array, image.get_fdata().reshape(shape, order="F"), rtol=1e-6)
    if name.endswith(".nrrd"):
        picture = sitk.ReadImage(str(path))
        assert scan.geometry.distance(geometry_of_simpleitk(picture)) < 1e-4
        assert np.array_equal(scan.array, sitk.GetArrayFromImage(picture).T)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_gives_its_one_line(shared: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    kind, words = REFUSED[name]
    with pytest.raises(ImageError) as caught:
        vio.read(shared / "data/nasty" / name)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_folders_of_mixed_files(shared: Path) -> None:
    assert vio.read(shared / "data/nasty" / VUE).geometry.shape == (64, 64, 6)
    for name in (NIB, QI):
        kind, words = {NIB: (GeometryError, "by 0.30 degrees"), QI: (ImageError, "no DICOM images")}[name]
        with pytest.raises(kind, match=words):
            vio.read(shared / "data/nasty" / name)


@pytest.mark.parametrize("codec", ["j2k", "jpeg", "jpegls", "rle"])
def test_compressed_series_equals_its_ground_truth(shared: Path, codec: str) -> None:
    generic = shared / "data/nasty" / D2N / "generic"
    ours = vio.read(generic / f"compressed_{codec}/001")
    truth = vio.read(generic / "compressed_rle/001_ground_truth.nii.gz")
    assert np.allclose(canonical(ours).affine, canonical(truth).affine, atol=1e-3)
    assert np.array_equal(canonical(ours).get_fdata(), canonical(truth).get_fdata())


def test_two_slices_equal_their_ground_truth(shared: Path) -> None:
    folder = shared / "data/nasty" / D2N / "failing/slicecount"
    ours, truth = canonical(vio.read(folder / "001")), canonical(vio.read(folder / "001_ground_truth.nii.gz"))
    assert np.allclose(ours.affine, truth.affine, atol=1e-3)
    assert np.array_equal(ours.get_fdata(), truth.get_fdata())


def test_multiframe_equals_its_single_slices(shared: Path) -> None:
    for size in ("23x38x3", "24x38x3"):
        folder = shared / "data/nasty" / QI / size
        many, one = vio.read(folder / "image"), vio.read(folder / "multiframe")
        assert many.geometry.distance(one.geometry) < 1e-3
        assert np.array_equal(many.array, one.array)


def test_twelve_orientations_are_one_head(shared: Path) -> None:
    folder = shared / "data/nasty" / VUE / "nifti_space"
    heads = [canonical(vio.read(path)) for path in sorted(folder.iterdir())]
    assert len(heads) == 12
    for head in heads:
        assert head.shape == (64, 79, 67)
        assert np.corrcoef(head.get_fdata().ravel(), heads[0].get_fdata().ravel())[0, 1] > 0.99


@pytest.mark.parametrize("volume", [0, 19])
def test_volume_of_4d_equals_nibabel(shared: Path, volume: int) -> None:
    path = shared / "data/nasty" / NIB / "functional.nii"
    assert np.allclose(vio.read(path, volume=volume).array, nib.load(path).get_fdata()[..., volume], rtol=1e-5)


def canonical(scan: vio.Volume) -> nib.Nifti1Image:
    """The same scan with its axes as near to RAS+ as they can be."""
    return nib.as_closest_canonical(nib.Nifti1Image(scan.array, scan.geometry.affine))
