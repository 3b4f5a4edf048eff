"""Whether two modalities of a case lie on each other, and how to put them there."""

from collections.abc import Mapping
from typing import Any

from veloxseg.io.volume import Volume
from veloxseg.prepare.plan import Plan


def alignment_warnings(volumes: Mapping[str, Volume], plan: Plan) -> tuple[dict[str, Any], list[str]]:
    return {}, []


def registered(volumes: Mapping[str, Volume], plan: Plan) -> Mapping[str, Volume]:
    return volumes
