"""Medical Segmentation Decathlon: `dataset.json` with `modality`, one file per case in imagesTr.

Several modalities are one 4-D file; `Case.volumes` then says which of its volumes is which modality.
"""

from pathlib import Path

from veloxseg.errors import DatasetError
from veloxseg.prepare.dataset import Case, Dataset, safe_name, without_suffix
from veloxseg.prepare.layouts.descriptor import find_descriptor, peek, read_descriptor
from veloxseg.prepare.modality import canonical_name

__all__ = ["read", "recognises"]


def recognises(path: Path) -> bool:
    return "modality" in peek(find_descriptor(path))


def read(path: Path) -> Dataset:
    source = find_descriptor(path)
    root = source.parent
    description = read_descriptor(source)
    try:
        modalities = [
            canonical_name(str(description["modality"][k])) for k in sorted(description["modality"], key=int)
        ]
        labels = {str(name): int(value) for value, name in description["labels"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(
            f"{source} lacks or garbles modality or labels ({error}); restore it from the archive"
        ) from error
    background = [name for name, value in labels.items() if value == 0]
    labels = {"background": 0, **{n: v for n, v in labels.items() if n not in background}}
    cases = []
    for folder, label_folder, split in (("imagesTr", "labelsTr", None), ("imagesTs", "labelsTs", "test")):
        for file in sorted((root / folder).glob("*.nii.gz")):
            if file.name.startswith("."):  # the archives carry AppleDouble files, "._case.nii.gz"
                continue
            name = safe_name(without_suffix(file.name), file)
            label = root / label_folder / file.name
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
