"""Medical Segmentation Decathlon: `dataset.json` with `modality`, one file per case in imagesTr.

Several modalities are one 4-D file; `Case.volumes` then says which of its volumes is which modality.
"""

from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset, safe_name
from veloxseg.dataset.naming import channel_names, find_description, label_values, peek, read_description
from veloxseg.errors import DatasetError
from veloxseg.image.formats import images_by_case

__all__ = ["read", "recognises"]


def recognises(path: Path) -> bool:
    source = find_description(path)
    return "modality" in peek(source) and any((source.parent / part).is_dir() for part in ("imagesTr", "imagesTs"))


def read(path: Path) -> Dataset:
    source = find_description(path)
    root = source.parent
    description = read_description(source)
    modalities = list(channel_names(description, source).values())
    labels = {name: values[0] for name, values in label_values(description, source).items() if values[0] != 0}
    if not modalities or not labels:
        raise DatasetError(f"{source} names no modality or no label; restore it from the archive")
    labels = {"background": 0, **labels}
    cases = []
    for folder, label_folder, split in (("imagesTr", "labelsTr", None), ("imagesTs", "labelsTs", "test")):
        images, labelled = (images_by_case(p) if p.is_dir() else {} for p in (root / folder, root / label_folder))
        for name, file in images.items():
            safe_name(name, file)
            label = labelled.get(name, root / label_folder / file.name)
            has_label = split is None or label.is_file()
            cases.append(
                Case(
                    name=name,
                    patient=name,
                    images=dict.fromkeys(modalities, file),
                    volumes={m: n for n, m in enumerate(modalities)} if len(modalities) > 1 else {},
                    label=label if has_label else None,
                    split=split,
                )
            )
    return Dataset(
        name=str(description.get("name", root.name)),
        layout="msd",
        root=root,
        modalities=tuple(modalities),
        labels=labels,
        cases=tuple(cases),
    )
