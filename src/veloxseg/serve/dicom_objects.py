"""DICOM objects of a result: the mask as SEG, its lesions as a TID 1500 report, and a picture for a PACS without SEG.

Patient and study are the source's. Series and instance UIDs are derived from the study, the model's weights, the
options and the edits: the same result is always the same object, so that sending it twice files it once.
"""

import uuid
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg import __version__
from veloxseg.errors import OutputError
from veloxseg.files import atomic_path, digest, read_json
from veloxseg.image.dicom.file import open_dicom, parsing, quiet
from veloxseg.image.dicom.seg import Identity, source_images, write_segmentation
from veloxseg.image.dicom.segments import codes_for
from veloxseg.machine import NOTICE
from veloxseg.predict.result import Segmentation
from veloxseg.predict.scans import Scans
from veloxseg.serve.documents import write_picture
from veloxseg.serve.intake import MANUFACTURER

__all__ = ["derived_uid", "write_capture", "write_seg", "write_sr"]

NAMESPACE = uuid.UUID("5b2a8a7e-4f0d-5c63-9a55-1d6c3f0a7b10")
SERIES_NUMBERS = {"seg": 9001, "sr": 9002, "capture": 9003}
MOST_LESIONS = 200  # in a report; more are noise, and the CSV holds them all


def derived_uid(*parts: str) -> str:
    """A UID that is the same whenever its parts are."""
    return f"2.25.{uuid.uuid5(NAMESPACE, '|'.join(parts)).int}"


def uids(result: Segmentation, kind: str, study: str) -> tuple[str, str]:
    """Series and instance UID of one kind of object."""
    record = result.provenance
    decided = digest([record["models"], record["options"], record["inputs"], record["edits"]])
    return derived_uid(study, decided, kind, "series"), derived_uid(study, decided, kind, "instance")


def source_of(result: Segmentation) -> Path:
    """The folder of the series on whose grid the mask lies."""
    if result.labels.file_type != "dicom" or result.labels.source is None:
        raise OutputError(
            f"a DICOM object belongs to a DICOM series, and the scan was a {result.labels.file_type} file; "
            "take mask.nii.gz instead"
        )
    return result.labels.source


def study_of(source: Path) -> str:
    with parsing():
        first = next(iter(sorted(source.iterdir())))
        return str(open_dicom(first, ["StudyInstanceUID"]).get("StudyInstanceUID") or "")


def write_seg(result: Segmentation, scans: Scans, path: Path) -> None:
    """One binary segment per label that was found."""
    source = source_of(result)
    series, instance = uids(result, "seg", study_of(source))
    names = {value: name for value, name in result.names.items() if value > 0}
    identity = Identity(series=series, instance=instance, edited=bool(result.provenance["edits"]))
    write_segmentation(result.labels, source, path, names, result.labels.header.get("series"), identity)


def write_sr(result: Segmentation, scans: Scans, path: Path) -> None:
    """TID 1500: a group per label that refers to its segment, and one per lesion with its numbers."""
    import highdicom
    from pydicom.sr.codedict import codes

    source = source_of(result)
    seg_path = path.with_name("seg.dcm")
    if not seg_path.is_file():
        write_seg(result, scans, seg_path)
    statistics = read_json(path.with_name("statistics.json"))
    with quiet():
        images = source_images(result.labels, source, result.labels.header.get("series"))
        segmentation = open_dicom(seg_path)
        study = str(segmentation.StudyInstanceUID)
        groups = []
        for segment in segmentation.SegmentSequence:
            name = str(segment.SegmentLabel)
            groups += _groups(name, statistics["labels"].get(name), segmentation, segment, images)
        series, instance = uids(result, "sr", study)
        device = highdicom.sr.DeviceObserverIdentifyingAttributes(
            uid=derived_uid("device", __version__), name="VeloxSeg", manufacturer_name=MANUFACTURER
        )
        context = highdicom.sr.ObservationContext(
            observer_device_context=highdicom.sr.ObserverContext(
                observer_type=codes.DCM.Device, observer_identifying_attributes=device
            )
        )
        report = highdicom.sr.MeasurementReport(
            observation_context=context,
            procedure_reported=highdicom.sr.CodedConcept("363679005", "SCT", "Imaging procedure"),
            imaging_measurements=groups,
            title=codes.DCM.ImagingMeasurementReport,
        )
        document = highdicom.sr.ComprehensiveSR(
            evidence=[*images, segmentation],
            content=report[0],
            series_instance_uid=series,
            series_number=SERIES_NUMBERS["sr"],
            sop_instance_uid=instance,
            instance_number=1,
            manufacturer=MANUFACTURER,
            is_complete=True,
            series_description=f"VeloxSeg measurements, {NOTICE.partition(',')[0]}",
        )
        with atomic_path(path) as temporary:
            document.save_as(temporary)


def _groups(name: str, label: Any, segmentation: Any, segment: Any, images: list[Any]) -> list[Any]:
    """The groups of one label: its sum with the segment, then its lesions, largest first."""
    import highdicom
    from pydicom.sr.codedict import codes

    if label is None or not label["count"]:
        return []
    category, kind, regions = codes_for(name)
    sites = [highdicom.sr.FindingSite(anatomic_location=region) for region in regions] or None
    reference = highdicom.sr.ReferencedSegment(
        sop_class_uid=segmentation.SOPClassUID,
        sop_instance_uid=segmentation.SOPInstanceUID,
        segment_number=int(segment.SegmentNumber),
        source_series=highdicom.sr.SourceSeriesForSegmentation(images[0].SeriesInstanceUID),
    )
    whole = highdicom.sr.VolumetricROIMeasurementsAndQualitativeEvaluations(
        tracking_identifier=_tracking(segmentation, f"{name}, all"),
        referenced_segment=reference,
        finding_type=kind,
        finding_category=category,
        finding_sites=sites,
        measurements=_measurements({key: label.get(key) for key in ("volume_ml", "suv_max", "tlg")}),
    )
    lesions = [
        highdicom.sr.MeasurementsAndQualitativeEvaluations(
            tracking_identifier=_tracking(segmentation, f"{name} {number}"),
            finding_type=codes.SCT.Lesion,
            finding_sites=sites,
            measurements=_measurements(lesion),
        )
        for number, lesion in enumerate(label["lesions"][:MOST_LESIONS], 1)
    ]
    return [whole, *lesions]


def _tracking(segmentation: Any, name: str) -> Any:
    import highdicom

    uid = derived_uid(str(segmentation.SOPInstanceUID), name)
    return highdicom.sr.TrackingIdentifier(uid=uid, identifier=name[:64])


def _measurements(numbers: Any) -> list[Any]:
    import highdicom
    from pydicom.sr.codedict import codes

    suv, unit = codes.DCM.Suvbw, codes.UCUM.StandardizedUptakeValueBodyWeight
    millilitre = highdicom.sr.CodedConcept("ml", "UCUM", "milliliter")
    gram = highdicom.sr.CodedConcept("g", "UCUM", "gram")
    table = {
        "volume_ml": (codes.SCT.Volume, millilitre, None),
        "suv_max": (suv, unit, codes.SCT.Maximum),
        "suv_mean": (suv, unit, codes.SCT.Mean),
        "suv_peak": (suv, unit, codes.DCM.PeakValueWithinROI),
        "tlg": (codes.DCM.TotalLesionGlycolysis, gram, None),
    }
    return [
        highdicom.sr.Measurement(name=name, value=float(numbers[key]), unit=unit, derivation=derivation)
        for key, (name, unit, derivation) in table.items()
        if numbers.get(key) is not None
    ]


def write_capture(result: Segmentation, scans: Scans, path: Path) -> None:
    """The picture of the case as a secondary capture, which every PACS shows."""
    import highdicom
    from PIL import Image

    source = source_of(result)
    picture = path.with_name("preview.png")
    if not picture.is_file():
        write_picture(result, scans, picture)
    with quiet(), Image.open(picture) as opened:
        image = source_images(result.labels, source, result.labels.header.get("series"))[0]
        series, instance = uids(result, "capture", str(image.StudyInstanceUID))
        capture = highdicom.sc.SCImage.from_ref_dataset(
            ref_dataset=image,
            pixel_array=np.asarray(opened.convert("RGB")),
            photometric_interpretation="RGB",
            bits_allocated=8,
            coordinate_system="PATIENT",
            patient_orientation=("L", "P"),
            series_instance_uid=series,
            series_number=SERIES_NUMBERS["capture"],
            sop_instance_uid=instance,
            instance_number=1,
            manufacturer=MANUFACTURER,
            series_description=f"VeloxSeg picture, {NOTICE.partition(',')[0]}",
            transfer_syntax_uid="1.2.840.10008.1.2.1",
        )
        capture.Laterality = None  # it has to be there, and a picture of the whole patient has none
        with atomic_path(path) as temporary:
            capture.save_as(temporary)
