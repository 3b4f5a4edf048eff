"""Everything that can go wrong through no fault of the program, as one small tree.

    VeloxSegError                 the base: one line for the user, exit code 2
    ├── ConfigError               a setting is wrong or does not fit another (also a ValueError)
    │   └── ShapeError            a size does not fit the network
    ├── ImageError                a file cannot be read as an image
    │   └── GeometryError         an image lies in space in a way that we refuse to guess about
    ├── DatasetError              a folder of cases is not what it should be
    ├── ModelError                a model folder or checkpoint is damaged or does not fit
    ├── OutputError               the result cannot be written where it was asked for
    ├── ClusterError              a cluster of machines cannot do the work
    └── MissingDependencyError    an optional part is not installed

Each message says what was found, what was expected and what to do, in one line. An OSError that nobody has
turned into one of these (a path of 5,000 characters, a folder removed meanwhile) is one line too, with exit code 2.
Other errors are bugs: the command line reports them with exit code 1.
"""

from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ClusterError",
    "ConfigError",
    "DatasetError",
    "GeometryError",
    "ImageError",
    "MissingDependencyError",
    "ModelError",
    "OutputError",
    "ShapeError",
    "VeloxSegError",
    "alike",
    "did_you_mean",
    "shown",
    "some",
]


LONGEST_MESSAGE = 1000  # characters, a few lines of a terminal: a name from outside may have thousands


class VeloxSegError(Exception):
    """Bad input or usage: the message is the one line that the user sees, whatever came in from outside."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shown(message, LONGEST_MESSAGE))


class ConfigError(VeloxSegError, ValueError):
    """A setting is wrong, or does not fit another setting."""


class ShapeError(ConfigError):
    """A size does not fit the network."""


class ImageError(VeloxSegError):
    """A file cannot be read as an image."""


class GeometryError(ImageError):
    """An image, or a set of images, has a geometry that must not be guessed about."""


class DatasetError(VeloxSegError):
    """A folder of cases is not what it should be."""


class ModelError(VeloxSegError):
    """A model folder or checkpoint is damaged, unsafe, or does not fit."""


class OutputError(VeloxSegError):
    """The result cannot be written where it was asked for."""


class ClusterError(VeloxSegError):
    """A cluster cannot be reached, or one of its machines cannot do the work."""


class MissingDependencyError(VeloxSegError, ImportError):
    """An optional part is needed and not installed (see extras.py)."""


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """The closest of the choices, to stand behind a wrong word in a message; empty if none is close.

    >>> did_you_mean("grup_size", ["group_sizes", "heads"])
    ' (did you mean group_sizes?)'
    """
    import difflib

    by_word = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(str(word).lower()[:100], by_word, 1)
    return f" (did you mean {by_word[close[0]]}?)" if close else ""


def shown(value: object, limit: int = 200) -> str:
    """Text from outside as it may stand in a message: on one line, and not too long."""
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def some(names: Sequence[str], most: int = 5) -> str:
    """The first few of many names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return shown(", ".join(names[:most])) + rest


def alike(failures: Mapping[str, str]) -> dict[str, list[str]]:
    """The same message of many cases once: message, with <case> for the case's name → cases.

    >>> alike({"a": "a.nii is empty", "b": "b.nii is empty"})
    {'<case>.nii is empty': ['a', 'b']}
    """
    found: dict[str, list[str]] = {}
    for name, message in failures.items():
        found.setdefault(message.replace(name, "<case>"), []).append(name)
    return {text if len(names) > 1 else failures[names[0]]: names for text, names in found.items()}
