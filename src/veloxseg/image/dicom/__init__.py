"""DICOM: series, their pixels and units, segmentations and contours."""
