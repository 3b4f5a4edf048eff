"""Recurrences over long sequences in plain PyTorch: Mamba's selective scan and RWKV's bidirectional WKV.

    selective scan    h_t = exp(step_t · rate) h_{t-1} + step_t · x_t · write_t,    y_t = read_t · h_t
    WKV               y_t = (Σ_{i≠t} e^{k_i - (|t-i|-1) w/T} v_i + e^{k_t + u/T} v_t) / (the same without v)

The usual kernels for these run on a GPU only. Here a sequence of length L is cut into about √L chunks. All
chunks advance together, so that a pass takes √L steps on large tensors and not L steps on small ones:

    1. every chunk from an empty state: what it adds to the state at its end,
    2. from chunk to chunk: the state at each chunk's start,
    3. every chunk again from that state, now reading the output.

Nothing is divided by a product of decays, so no chunk overflows, and no tensor holds the states of all L.
"""

# B batch, L position, J chunk, T position in the chunk, G group of channels, D channel in the group, N state

import math

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["bidirectional_wkv", "selective_scan"]


def selective_scan(
    inputs_BLGD: Tensor, step_BLGD: Tensor, rate_GDN: Tensor, write_BLGN: Tensor, read_BLGN: Tensor
) -> Tensor:
    """Scan along L; `rate` is negative for states that fade. Returns (B, L, G, D)."""
    length = inputs_BLGD.shape[1]
    chunk = math.ceil(math.sqrt(length))
    drive = _into_chunks(step_BLGD * inputs_BLGD, chunk).unsqueeze(-1)  # (T, B, J, G, D, 1)
    step = _into_chunks(step_BLGD, chunk).unsqueeze(-1)  # (T, B, J, G, D, 1)
    write = _into_chunks(write_BLGN, chunk).unsqueeze(-2)  # (T, B, J, G, 1, N)
    read = _into_chunks(read_BLGN, chunk).unsqueeze(-2)  # (T, B, J, G, 1, N)

    added = drive[0] * write[0]  # (B, J, G, D, N)
    for t in range(1, chunk):
        added = torch.exp(step[t] * rate_GDN) * added + drive[t] * write[t]

    kept = torch.exp(step.sum(0) * rate_GDN)  # what is left of a state at the end of each chunk
    starts = [torch.zeros_like(added[:, 0])]
    for j in range(added.shape[1] - 1):
        starts.append(kept[:, j] * starts[-1] + added[:, j])
    state = torch.stack(starts, dim=1)

    outputs = []
    for t in range(chunk):
        state = torch.exp(step[t] * rate_GDN) * state + drive[t] * write[t]
        outputs.append((state * read[t]).sum(-1))
    outputs_BJTGD = torch.stack(outputs, dim=2)
    return outputs_BJTGD.flatten(1, 2)[:, :length]


def bidirectional_wkv(decay_D: Tensor, bonus_D: Tensor, key_BLD: Tensor, value_BLD: Tensor) -> Tensor:
    """RWKV's attention without queries, over both directions as in Vision-RWKV. Returns (B, L, D)."""
    length = key_BLD.shape[1]
    # Decays are relative to the length, so the largest key bounds numerator and denominator alike.
    weight_BLD = torch.exp(key_BLD - key_BLD.detach().amax(1, keepdim=True))
    terms_BLGD = torch.stack([weight_BLD * value_BLD, weight_BLD], dim=2)  # G: numerator, denominator
    rate_D = -decay_D / length
    others = _earlier(terms_BLGD, rate_D) + _earlier(terms_BLGD.flip(1), rate_D).flip(1)
    numerator, denominator = (others + torch.exp(bonus_D / length) * terms_BLGD).unbind(2)
    return numerator / denominator


def _earlier(terms_BLGD: Tensor, rate_D: Tensor) -> Tensor:
    """Sum of all earlier terms, each faded by exp(rate) for every position that lies between."""
    groups = terms_BLGD.shape[2]
    ones = torch.ones_like(terms_BLGD)
    states = selective_scan(
        terms_BLGD, ones, rate_D.expand(groups, -1).unsqueeze(-1), ones[..., :1], ones[..., :1]
    )
    return functional.pad(states[:, :-1], (0, 0, 0, 0, 1, 0))


def _into_chunks(sequence_BLGD: Tensor, chunk: int) -> Tensor:
    """(B, L, G, D) to (T, B, J, G, D); the tail is filled with steps of zero, which keep a state as it is."""
    missing = -sequence_BLGD.shape[1] % chunk
    padded = functional.pad(sequence_BLGD, (0, 0, 0, 0, 0, missing))
    chunks = padded.reshape(padded.shape[0], -1, chunk, *padded.shape[2:])  # (B, J, T, G, D)
    return chunks.movedim(2, 0).contiguous()
