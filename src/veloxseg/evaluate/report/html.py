"""HTML that cannot be broken by a name: text is escaped unless it was built here.

>>> element("td", "<script>", class_="name")
'<td class="name">&lt;script&gt;</td>'
"""

import base64
import html
from collections.abc import Iterable

__all__ = ["Html", "data_uri", "element", "join", "table"]

VOID = {"img", "input", "meta", "br", "hr"}


class Html(str):
    """Text that is markup already."""


def element(name: str, /, *children: str, **attributes: str | bool) -> Html:
    """A tag with its attributes and children.

    The trailing `_` of an attribute's name is dropped and every other `_` becomes `-`; an attribute that is True
    stands alone, and one that is False is left out.
    """
    written = ""
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            written += f" {key}"
        elif value is not False:
            written += f' {key}="{html.escape(value)}"'
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, box: str = "scroll", **attributes: str) -> Html:
    """A table in a box that scrolls sideways on a narrow screen; text that is no cell yet becomes one."""
    columns = [_cell("th", name, scope="col") for name in head]
    body = [element("tr", *(_cell("td", value) for value in row)) for row in rows]
    content = element("thead", element("tr", *columns)) + element("tbody", *body)
    return element("div", element("table", Html(content), **attributes), class_=box)


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _cell(name: str, value: str, **attributes: str) -> Html:
    return value if isinstance(value, Html) else element(name, value, **attributes)
