"""Small synthetic images of every type that the library reads, for the tests beside this file."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import SimpleITK as sitk
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

import veloxseg.image as vio
from veloxseg.image.itk import to_simpleitk

SHAPE = (8, 7, 6)
SPACING = (1.5, 2.0, 3.0)


def ramp(shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    """An image in which every voxel has a value of its own."""
    return np.arange(np.prod(shape), dtype=np.int16).reshape(shape, order="F")


def oblique_affine(spacing: tuple[float, float, float] = SPACING) -> np.ndarray:
    """RAS+ affine, turned about two axes, with an origin."""
    a, b = 0.3, -0.2
    turn_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    turn_x = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    affine = np.eye(4)
    affine[:3, :3] = turn_z @ turn_x @ np.diag(spacing)
    affine[:3, 3] = (-31.5, 12.25, 80.0)
    return affine


FILED_AS = {
    "CT": pydicom.uid.CTImageStorage,
    "MR": pydicom.uid.MRImageStorage,
    "PT": pydicom.uid.PositronEmissionTomographyImageStorage,
}


def slice_dataset(z: int, **changes: object) -> FileDataset:
    """One axial slice of a synthetic CT with one voxel value per place; `changes` are tags to set after."""
    changes = {"SOPClassUID": FILED_AS.get(str(changes.get("Modality", "CT")), pydicom.uid.CTImageStorage)} | changes
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["slice", str(z)])
    dataset = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SOPClassUID, dataset.SOPInstanceUID = (meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID)
    dataset.StudyInstanceUID = generate_uid(entropy_srcs=["study"])
    dataset.SeriesInstanceUID = generate_uid(entropy_srcs=["series"])
    dataset.FrameOfReferenceUID = generate_uid(entropy_srcs=["frame"])
    dataset.PatientName, dataset.PatientID, dataset.PatientBirthDate = "Secret^Name", "SECRET-ID", "19700101"
    dataset.PatientSex, dataset.AccessionNumber, dataset.StudyID = "O", "SECRET-ACC", "1"
    dataset.StudyDate, dataset.StudyTime, dataset.ReferringPhysicianName = "20200101", "120000", ""
    dataset.Modality, dataset.SeriesNumber, dataset.InstanceNumber = "CT", 4, z + 1
    dataset.Manufacturer, dataset.PositionReferenceIndicator = "", ""
    dataset.Columns, dataset.Rows = SHAPE[0], SHAPE[1]
    dataset.ImagePositionPatient = [-10.0, -20.0, 30.0 + SPACING[2] * z]
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    dataset.PixelSpacing = [SPACING[1], SPACING[0]]
    dataset.SliceThickness = SPACING[2]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 16, 15, 1
    dataset.RescaleSlope, dataset.RescaleIntercept = 1, -1024
    if z < SHAPE[2]:
        dataset.PixelData = ramp()[:, :, z].T.tobytes()
    for keyword, value in changes.items():
        setattr(dataset, keyword, value)
    return dataset


HALF_LIFE = 6586.2  # fluorine-18, seconds


def pet_slice(z: int = 0, **changes: object) -> FileDataset:
    """One slice of a synthetic PET: 370 MBq at 10:00, scan at 11:00, 70 kg; `changes` are tags to set after."""
    injection = pydicom.Dataset()
    injection.RadionuclideTotalDose, injection.RadionuclideHalfLife = "370000000", str(HALF_LIFE)
    injection.RadiopharmaceuticalStartTime = "100000.00"
    dataset = slice_dataset(z, Modality="PT", Units="BQML", DecayCorrection="START", PatientWeight="70")
    dataset.RescaleIntercept = 0
    dataset.CorrectedImage = ["ATTN", "DECY"]
    dataset.SeriesDate = dataset.AcquisitionDate = "20200101"
    dataset.SeriesTime, dataset.AcquisitionTime = "110000", f"11{z:02d}00.5"
    dataset.RadiopharmaceuticalInformationSequence = [injection]
    for keyword, value in changes.items():
        target = injection if keyword.startswith("Radio") and not keyword.endswith("Sequence") else dataset
        setattr(target, keyword, value)
    return dataset


def write_series(folder: Path, datasets: list[FileDataset] | None = None) -> Path:
    """A DICOM folder, with file names that are not in the order of the slices."""
    folder.mkdir(parents=True)
    for i, dataset in enumerate(datasets or [slice_dataset(z) for z in range(SHAPE[2])]):
        dataset.save_as(folder / f"{(i * 5) % 7}{i}.dcm", enforce_file_format=True)
    return folder


def write_rtstruct(path: Path, contours: dict[str, list[np.ndarray]], drawn_on: str = "") -> Path:
    """Contours (points in LPS+ millimetres) per region name, drawn on the series of this UID."""
    dataset = slice_dataset(0, Modality="RTSTRUCT", SOPClassUID=pydicom.uid.RTStructureSetStorage)
    for keyword in ("PixelData", "Rows", "Columns"):
        delattr(dataset, keyword)
    dataset.StructureSetROISequence, dataset.ROIContourSequence = [], []
    if drawn_on:
        series, study, frame = pydicom.Dataset(), pydicom.Dataset(), pydicom.Dataset()
        series.SeriesInstanceUID, study.RTReferencedSeriesSequence = drawn_on, [series]
        frame.FrameOfReferenceUID, frame.RTReferencedStudySequence = dataset.FrameOfReferenceUID, [study]
        dataset.ReferencedFrameOfReferenceSequence = [frame]
    for number, (name, polygons) in enumerate(contours.items(), start=1):
        roi, drawn = pydicom.Dataset(), pydicom.Dataset()
        roi.ROINumber, roi.ROIName = number, name
        drawn.ReferencedROINumber, drawn.ContourSequence = number, []
        for points in polygons:
            contour = pydicom.Dataset()
            contour.ContourGeometricType, contour.NumberOfContourPoints = "CLOSED_PLANAR", len(points)
            contour.ContourData = [round(float(x), 4) for x in points.ravel()]
            drawn.ContourSequence.append(contour)
        dataset.StructureSetROISequence.append(roi)
        dataset.ROIContourSequence.append(drawn)
    dataset.save_as(path, enforce_file_format=True)
    return path


def box_contours(z_range: range) -> list[np.ndarray]:
    """A rectangle around columns 2 to 5 and rows 1 to 4 of the synthetic CT, on some slices."""
    x, y = (-10 + SPACING[0] * np.array([1.5, 5.5, 5.5, 1.5]), -20 + SPACING[1] * np.array([0.5, 0.5, 4.5, 4.5]))
    return [np.stack([x, y, np.full(4, 30 + SPACING[2] * z)], axis=1) for z in z_range]


def write_samples(folder: Path) -> dict[str, Path]:
    """One of each type, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    affine = oblique_affine()
    samples = {}
    for name in ("plain.nii", "packed.nii.gz", "pair.hdr", "two.nii"):
        kind = {"pair.hdr": nib.Nifti1Pair, "two.nii": nib.Nifti2Image}.get(name, nib.Nifti1Image)
        image = kind(ramp(), affine)
        image.set_qform(affine, 1)
        image.set_sform(affine, 1)
        samples[name] = folder / name
        nib.save(image, samples[name])
    scan = vio.read(samples["plain.nii"])
    picture = to_simpleitk(scan.array.astype(np.int16), scan.geometry)
    for name, packed in {
        "a.nrrd": False,
        "b.nrrd": True,
        "c.mha": False,
        "d.mha": True,
        "e.mhd": False,
        "f.nhdr": True,
    }.items():
        samples[name] = folder / name
        sitk.WriteImage(picture, str(samples[name]), packed)
    samples["series"] = write_series(folder / "series")
    series = vio.read(samples["series"])
    labels = np.zeros(SHAPE, np.uint8)
    labels[2:5, 1:4, 1:4] = 2
    labels[6, 5, 2:5] = 1
    samples["seg"] = folder / "seg.dcm"
    vio.write_dicom_seg(
        vio.Volume(array=labels, geometry=series.geometry), samples["series"], samples["seg"], {1: "a", 2: "b"}
    )
    samples["rtstruct"] = write_rtstruct(folder / "rt.dcm", {"GTV": box_contours(range(1, 4))})
    return samples
