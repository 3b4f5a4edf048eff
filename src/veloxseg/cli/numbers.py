"""The numbers that options take, as types for the parser: what is out of range ends with exit code 2 and one line."""

from typing import Annotated

from veloxseg.schema import Count, Range, Share, argument

__all__ = ["amount", "count", "few", "millimetres", "number", "port", "share", "side", "size"]

few = argument(Annotated[int, Range(1, 1024)])
number = argument(Annotated[int, Range(0, 2**63 - 1)])
count = argument(Count)
side = argument(Annotated[int, Range(1, 4096)])
size = argument(Annotated[float, Range(1e-6, 1e6)])
amount = argument(Annotated[float, Range(0, 1e6)])
share = argument(Share)
port = argument(Annotated[int, Range(0, 65535)])
millimetres = argument(Annotated[float, Range(0.01, 100)])
