"""docs/settings.md, made from the fields of recipe and network: `python -m veloxseg.train.settings_page`."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from veloxseg.model.config import NetworkConfig
from veloxseg.schema import describe
from veloxseg.train.recipe import SHORT, Recipe
from veloxseg.train.settings import NETWORK, RECIPE, setting_text

__all__ = ["field_texts", "page"]

HEADER = """# Settings of a training

Every setting that `veloxseg train` takes by `--set NAME=VALUE` or from a file (`--config FILE.toml`). Defaults are the
paper's. Lists are written `4,8,8,16`, sizes `96x96x96`, one window per stage `3x3x3,6x6x6,3x3x3,3x3x3`; in TOML they
are lists: `group_sizes = [4, 8, 8, 16]`. Several settings may follow one `--set`. The command line wins over the file.

```bash
veloxseg train prepared -o run-groups --set group_sizes=8,8,8,16 kernel_sizes=3 learning_rate=5e-4
veloxseg train prepared -o run-again --config run-groups/settings.json
```

The second command repeats the first by its own record: on the same data and machine the weights are the same, bit by
bit; on other data there is a warning, and a timed run (`max_minutes`) has as many steps as fit. Settings of the
network travel on in `model.json`, so prediction needs none of them again.

This page is made from the code: `python -m veloxseg.train.settings_page > docs/settings.md`.
"""
SHORT_NOTE = """With `max_minutes` (or `--max-minutes`) these defaults hold instead, wherever they are not set: {}.
"""


def page() -> str:
    """docs/settings.md."""
    changed = ", ".join(f"`{name}` {setting_text(value)}" for name, value in SHORT.items())
    return "\n".join(
        [
            HEADER,
            "## Recipe\n",
            _table(Recipe, RECIPE),
            "\n" + SHORT_NOTE.format(changed),
            "## Network\n",
            "Defaults are those of preset b; `--model` chooses another preset, and what is set changes it. Peers have "
            "no settings but `patch`.\n",
            _table(NetworkConfig, NETWORK),
            "",
        ]
    )


def _table(kind: Any, names: Mapping[str, Any]) -> str:
    texts, defaults = field_texts(kind), {item.name: item for item in fields(kind)}
    rows = ["| name | default | valid | meaning |", "|---|---|---|---|"]
    for name, valid in names.items():
        default = defaults[name].default
        shown_default = (setting_text(default) or "empty") if default is not MISSING else ""
        rows.append(f"| `{name}` | {shown_default} | {describe(valid)} | {texts[name]} |")
    return "\n".join(rows)


def field_texts(kind: Any) -> dict[str, str]:
    """The text below each field of a dataclass, on one line."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            found[statement.target.id] = " ".join(ast.literal_eval(following.value).split())  # type: ignore[union-attr]
    return found


if __name__ == "__main__":
    print(page(), end="")
