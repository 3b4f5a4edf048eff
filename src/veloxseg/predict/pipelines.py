"""What a plan's pipeline does before and after the network: our own, or that of nnU-Net. ONE table says which."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from veloxseg.image import Geometry
from veloxseg.predict import nnunet
from veloxseg.predict.restore import Restoration, restore, shared_columns
from veloxseg.predict.sliding import STRIP_BYTES, strips_within
from veloxseg.prepare.network_input import network_shape, to_network, working_bytes
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes.decoding import Decoding
from veloxseg.types import Floats, Size

__all__ = ["PIPELINES", "Pipeline", "strips_of"]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """The steps of a prediction that depend on how a model was trained. A placement is what `to_network` gives."""

    to_network: Callable[..., tuple[Floats, Any]]  # (volumes by name, plan) → network input and its placement
    restore: Callable[..., Restoration]  # (slabs, placement, decoding, probabilities) → what is on the scan's grid
    network_shape: Callable[[Geometry, Plan], Size]  # of a whole scan, for the estimate
    weights: Callable[[Size], Floats | None]  # of a window; None: the sliding window's own
    # for the estimate of memory: what making one modality's input takes besides scan and input, from the scan's grid
    working_bytes: Callable[[Geometry, Size, Plan], float]
    slabs_held: float  # rows of scores at the same time, as a multiple of the accumulator
    shared_columns: Callable[[Geometry, Plan], int]  # what strips of scores must have in common for `restore`


PIPELINES = {
    "veloxseg": Pipeline(
        to_network=to_network,
        restore=restore,
        network_shape=network_shape,
        weights=lambda patch: None,
        working_bytes=working_bytes,
        slabs_held=1.0,
        shared_columns=shared_columns,
    ),
    "nnunet": Pipeline(
        to_network=nnunet.to_network,
        restore=nnunet.restore,
        network_shape=nnunet.network_shape,
        weights=nnunet.window_weights,
        working_bytes=nnunet.working_bytes,
        slabs_held=nnunet.SLABS_HELD,
        shared_columns=nnunet.shared_columns,
    ),
}


def strips_of(shape: Size, scan: Geometry, decoding: Decoding) -> tuple[slice, ...]:
    """The strips in which a case is computed, from the network's grid and the scan's."""
    plan = decoding.plan
    pipeline = PIPELINES[plan.pipeline]
    memory = STRIP_BYTES / pipeline.slabs_held
    return strips_within(memory, shape, plan.patch, decoding.channels, pipeline.shared_columns(scan, plan))
