"""Segments of a DICOM SEG: what a label's name means as a code, its colour, and the label value that it stands for.

DICOM numbers segments 1, 2, 3, … without gaps, whatever the label values are. So each segment keeps its value in its
SegmentDescription, "VeloxSeg label value 2221", and reading gives that value back. Segments of other programs have no
such description; their numbers are the values.

Codes are SNOMED CT's (the NCI Thesaurus' for enhancing parts), by name from pydicom's tables. A lesion within an organ
("liver tumour") gets the organ as its region. A name that is not understood is coded as tissue, and stays as the label.
"""

import colorsys
import re
from collections.abc import Mapping, Sequence
from typing import Any

from veloxseg import __version__
from veloxseg.errors import ImageError

__all__ = ["segment_description", "value_of_segments"]

VALUE = "VeloxSeg label value "
# words that must all be in the name: keyword of the code; the first entry that fits counts
LESIONS = {
    "necrotic enhancing": "Neoplasm",  # BraTS calls two parts one label
    "non enhancing": "NonEnhancingLesion",
    "nonenhancing": "NonEnhancingLesion",
    "enhancing": "EnhancingLesion",
    "edema": "Edema",
    "oedema": "Edema",
    "necrosis": "Necrosis",
    "necrotic": "Necrosis",
    "gtvp": "NeoplasmPrimary",
    "gtvn": "NeoplasmSecondary",
    "metastasis": "NeoplasmSecondary",
    "metastases": "NeoplasmSecondary",
    "gtv": "Neoplasm",
    "tumor": "Neoplasm",
    "tumour": "Neoplasm",
    "cancer": "Neoplasm",
    "carcinoma": "Neoplasm",
    "sarcoma": "Neoplasm",
    "glioma": "Neoplasm",
    "lymphoma": "Neoplasm",
    "melanoma": "Neoplasm",
    "neoplasm": "Neoplasm",
    "mass": "Mass",
    "nodule": "Nodule",
    "cyst": "Cyst",
    "hemorrhage": "Hemorrhage",
    "haemorrhage": "Hemorrhage",
    "abscess": "Abscess",
    "lesion": "Lesion",
}
ORGANS = {
    "lymph node": "LymphNode",
    "left atrium": "LeftAtrium",
    "right atrium": "RightAtrium",
    "left ventricle": "LeftVentricle",
    "right ventricle": "RightVentricle",
    "spinal cord": "SpinalCord",
    "brain stem": "BrainStem",
    "brainstem": "BrainStem",
    "portal vein": "PortalVein",
    "inferior vena cava": "InferiorVenaCava",
    "small bowel": "SmallIntestine",
    "small intestine": "SmallIntestine",
    "gall bladder": "Gallbladder",
    "gallbladder": "Gallbladder",
    "bladder": "Bladder",
    "esophagus": "Esophagus",
    "oesophagus": "Esophagus",
    "adrenal": "AdrenalGland",
    "parotid": "ParotidGland",
    "liver": "Liver",
    "kidney": "Kidney",
    "spleen": "Spleen",
    "lung": "Lung",
    "hippocampus": "Hippocampus",
    "pancreas": "Pancreas",
    "heart": "Heart",
    "prostate": "Prostate",
    "cerebellum": "Cerebellum",
    "brain": "Brain",
    "aorta": "Aorta",
    "stomach": "Stomach",
    "colon": "Colon",
    "duodenum": "Duodenum",
    "rectum": "Rectum",
    "trachea": "Trachea",
    "thyroid": "Thyroid",
    "breast": "Breast",
    "uterus": "Uterus",
    "femur": "Femur",
    "skull": "Skull",
    "mandible": "Mandible",
    "sternum": "Sternum",
    "rib": "Rib",
    "vertebra": "Vertebra",
    "vertebrae": "Vertebra",
    "bone": "Bone",
}


def find(table: Mapping[str, str], name: str) -> str | None:
    """The entry whose words are all in the name, which may be in the plural."""
    found = re.findall(r"[a-z]+", name.lower())
    words = {*found, *(word.removesuffix("s") for word in found)}
    return next((keyword for needed, keyword in table.items() if words.issuperset(needed.split())), None)


def codes_for(name: str) -> tuple[Any, Any, list[Any]]:
    """Category, type and anatomic regions of what a label is called."""
    from pydicom.sr.codedict import codes

    lesion, organ = find(LESIONS, name), find(ORGANS, name)
    region = getattr(codes.SCT, organ) if organ else None
    if lesion:
        kind = getattr(codes.cid7159, lesion)  # lesion segmentation types
        return codes.SCT.MorphologicallyAbnormalStructure, kind, [region] if region else []
    if region:
        return codes.SCT.AnatomicalStructure, region, []
    return codes.SCT.Tissue, codes.SCT.Tissue, []


def segment_description(number: int, value: int, name: str, *, edited: bool = False) -> Any:
    """Segment `number` for the label value `value`; `edited` says that a person changed what the program found."""
    import highdicom
    from pydicom.sr.codedict import codes

    category, kind, regions = codes_for(name)
    types = highdicom.seg.SegmentAlgorithmTypeValues
    description = highdicom.seg.SegmentDescription(
        segment_number=number,
        segment_label=name[:64],
        segmented_property_category=category,
        segmented_property_type=kind,
        algorithm_type=types.SEMIAUTOMATIC if edited else types.AUTOMATIC,
        algorithm_identification=highdicom.AlgorithmIdentificationSequence(
            name="VeloxSeg", version=__version__, family=codes.DCM.ArtificialIntelligence
        ),
        anatomic_regions=regions or None,
        display_color=highdicom.color.CIELabColor.from_rgb(*colour_of(value)),
    )
    description.SegmentDescription = f"{VALUE}{value}"
    return description


def colour_of(value: int) -> tuple[int, int, int]:
    """Red, green and blue; the golden ratio puts the hues of neighbouring values far apart."""
    red, green, blue = colorsys.hsv_to_rgb((value - 1) * 0.618034 % 1, 0.8, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def value_of_segments(segments: Sequence[Any]) -> Mapping[int, int]:
    """The label value of each segment number; all segments state theirs, or none does."""
    stated = [str(segment.get("SegmentDescription") or "") for segment in segments]
    numbers = [int(segment.SegmentNumber) for segment in segments]
    if not any(text.startswith(VALUE) for text in stated):
        return dict(zip(numbers, numbers, strict=True))
    digits = [text.removeprefix(VALUE).strip() for text in stated]
    values = [int(text) if re.fullmatch(r"[0-9]{1,5}", text) else 0 for text in digits]
    if len(set(values)) < len(values) or not all(0 < value < 1 << 16 for value in values):
        raise ImageError(f"the segments do not state different label values from 1 to 65535 ({VALUE}…); write it again")
    return dict(zip(numbers, values, strict=True))
