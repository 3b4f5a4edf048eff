"""The images behind a case, found by name, as they are shown: nnU-Net's `case_0000.nii.gz`, `case_ct.nii.gz`, or
`case.nii.gz` itself."""

from pathlib import Path

from veloxseg.evaluate.cases import list_cases
from veloxseg.files import read_json

__all__ = ["find_images"]


def find_images(folder: Path) -> dict[str, dict[str, Path]]:
    """Case -> modality -> file. The modality is the name's last part, or what `dataset.json` calls the channel."""
    modalities = _channel_names(folder)
    found: dict[str, dict[str, Path]] = {}
    for name, path in list_cases(folder).items():
        case, _, channel = name.rpartition("_")
        found.setdefault(name, {})[modalities.get(0, "image")] = path
        if case and channel.isdecimal() and len(channel) == 4:
            found.setdefault(case, {})[modalities.get(int(channel), f"channel {int(channel)}")] = path
        elif case:
            found.setdefault(case, {})[channel.lower()] = path
    return found


def _channel_names(folder: Path) -> dict[int, str]:
    for path in (folder / "dataset.json", folder.parent / "dataset.json"):
        if path.is_file():
            content = read_json(path)
            names = (
                content.get("channel_names") or content.get("modality") or {}
                if isinstance(content, dict)
                else {}
            )
            return {int(key): str(name).lower() for key, name in names.items() if str(key).isdecimal()}
    return {}
