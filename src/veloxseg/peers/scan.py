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
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
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
    outputs: Tensor
    if torch.is_grad_enabled():
        outputs = ChunkedScan.apply(drive, step, rate_GDN, write, read)  # type: ignore[no-untyped-call]
    else:
        outputs, _ = _scan_chunks(drive, step, rate_GDN, write, read)
    return outputs.movedim(0, 2).flatten(1, 2)[:, :length]


def _scan_chunks(drive: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (T, B, J, G, D) and the state at the start of each chunk (B, J, G, D, N)."""
    added = drive[0] * write[0]
    for t in range(1, len(step)):
        added.mul_(torch.exp(step[t] * rate)).addcmul_(drive[t], write[t])
    starts = _carry(added, torch.exp(step.sum(0) * rate))
    outputs, state = [], starts.clone()
    for t in range(len(step)):
        state.mul_(torch.exp(step[t] * rate)).addcmul_(drive[t], write[t])
        outputs.append((state * read[t]).sum(-1))
    return torch.stack(outputs), starts


def _carry(added: Tensor, kept: Tensor) -> Tensor:
    """From what each chunk adds and how much it keeps of what it met: the state that each chunk meets."""
    met = [torch.zeros_like(added[:, 0])]
    for j in range(added.shape[1] - 1):
        met.append(torch.addcmul(added[:, j], kept[:, j], met[-1]))
    return torch.stack(met, dim=1)


class ChunkedScan(torch.autograd.Function):
    """The scan with its gradient, which is a scan in the opposite direction; states are computed again for it."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor) -> Tensor:
        outputs, starts = _scan_chunks(drive, step, rate, write, read)
        ctx.save_for_backward(drive, step, rate, write, read, starts)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outputs_gradient: Tensor) -> tuple[Tensor, ...]:
        drive, step, rate, write, read, starts = ctx.saved_tensors
        pull = outputs_gradient.unsqueeze(-1)  # (T, B, J, G, D, 1)
        times = range(len(step))

        states = [starts]  # states[t] is met by position t
        for t in times:
            states.append(torch.addcmul(states[t] * torch.exp(step[t] * rate), drive[t], write[t]))

        # What each chunk adds to the gradient of the state that it met, the chunks behind it left aside.
        reached = torch.zeros_like(starts)
        for t in reversed(times):
            reached.addcmul_(pull[t], read[t]).mul_(torch.exp(step[t] * rate))
        kept = torch.exp(step.sum(0) * rate)
        adjoint = _carry(reached.flip(1), kept.flip(1)).flip(1)

        drive_gradient, step_gradient = torch.empty_like(drive), torch.empty_like(step)
        write_gradient, read_gradient = torch.empty_like(write), torch.empty_like(read)
        rate_gradient = torch.zeros_like(rate)
        for t in reversed(times):
            adjoint.addcmul_(pull[t], read[t])  # now the gradient of the state behind position t
            read_gradient[t] = (pull[t] * states[t + 1]).sum(-2, keepdim=True)
            drive_gradient[t] = (adjoint * write[t]).sum(-1, keepdim=True)
            write_gradient[t] = (adjoint * drive[t]).sum(-2, keepdim=True)
            adjoint.mul_(torch.exp(step[t] * rate))
            exponent = adjoint * states[t]  # gradient of step · rate
            step_gradient[t] = (exponent * rate).sum(-1, keepdim=True)
            rate_gradient += (exponent * step[t]).sum((0, 1))
        return drive_gradient, step_gradient, rate_gradient, write_gradient, read_gradient


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
    states = selective_scan(terms_BLGD, ones, rate_D.expand(groups, -1).unsqueeze(-1), ones[..., :1], ones[..., :1])
    return functional.pad(states[:, :-1], (0, 0, 0, 0, 1, 0))


def _into_chunks(sequence_BLGD: Tensor, chunk: int) -> Tensor:
    """(B, L, G, D) to (T, B, J, G, D); the tail is filled with steps of zero, which keep a state as it is."""
    missing = -sequence_BLGD.shape[1] % chunk
    padded = functional.pad(sequence_BLGD, (0, 0, 0, 0, 0, missing))
    chunks = padded.reshape(padded.shape[0], -1, chunk, *padded.shape[2:])  # (B, J, T, G, D)
    return chunks.movedim(2, 0).contiguous()
