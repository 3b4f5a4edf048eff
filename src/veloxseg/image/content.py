"""The content of a scan as one hash, which follows the scan through every change of its file.

Renaming, compressing, another file type, byte order or order of axes: the hash stays. It is made of the voxels, as
float32 and in the order of the patient's axes, and of their number along each. Spacing and origin are left out on
purpose: file types round them differently, and a scan that was moved or rescaled in its header is the same scan.
"""

import hashlib

import numpy as np

from veloxseg.image.volume import Volume

__all__ = ["content_hash"]

DIGITS = 32  # hexadecimal: 128 bits, far beyond what chance could repeat


def content_hash(volume: Volume) -> str:
    turned = volume.in_ras()
    found = hashlib.sha256(" ".join(map(str, turned.geometry.shape)).encode())
    for plane_YX in turned.array.T:  # plane by plane, because a copy of the whole may not fit into memory
        found.update(np.ascontiguousarray(plane_YX + np.float32(0), np.float32).data)  # -0 becomes 0
    return found.hexdigest()[:DIGITS]
