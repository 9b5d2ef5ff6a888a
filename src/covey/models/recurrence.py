"""The recurrence of a GRU on a CPU, with few operations per step.

With few clients, starting the operations of a step costs more than their arithmetic. Therefore all
that does not need the state before is done for all steps at once, and the gradient of the weights
is a single product. Shape suffixes: P = steps, C = clients, H = 3 gates (reset, keep, new) times D.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def recur(in_PCH: Tensor, w_DH: Tensor, b_H: Tensor) -> Tensor:
    """The states of torch's GRU after each step, [P, C, D], from the inputs' part of the gates."""
    return torch.as_tensor(_Recurrence.apply(in_PCH, w_DH, b_H))


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, in_PCH: Tensor, w_DH: Tensor, b_H: Tensor) -> Tensor:
        P, C, H = in_PCH.shape
        D = H // 3
        h_PCD = in_PCH.new_zeros(P + 1, C, D)
        own_PCH, act_PCH = torch.empty_like(in_PCH), torch.empty_like(in_PCH)
        # Strided tensors: the sigmoid of a contiguous one rounds its last few numbers differently.
        (gate_PCG, new_PCD), (in_gate_PCG, in_new_PCD), (own_gate_PCG, own_new_PCD) = (
            (x[..., : 2 * D], x[..., 2 * D :]) for x in (act_PCH, in_PCH, own_PCH)
        )
        states = (h_PCD[:-1], h_PCD[1:], own_PCH, gate_PCG, new_PCD)
        inputs = (in_gate_PCG, in_new_PCD, own_gate_PCG, own_new_PCD)
        gates = (gate_PCG[..., :D], gate_PCG[..., D:])
        for h, after, own, gate, new, in_gate, in_new, own_gate, own_new, reset, keep in zip(
            *(x.unbind() for x in (*states, *inputs, *gates)), strict=True
        ):
            torch.addmm(b_H, h, w_DH, out=own)
            torch.add(in_gate, own_gate, out=gate).sigmoid_()
            torch.addcmul(in_new, reset, own_new, out=new).tanh_()
            torch.lerp(new, h, keep, out=after)
        ctx.save_for_backward(h_PCD, own_PCH, act_PCH, w_DH)
        return h_PCD[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Only the gradient of the state goes back step by step; the gates' is known at once."""
        h_PCD, own_PCH, act_PCH, w_DH = ctx.saved_tensors
        D = h_PCD.shape[2]
        reset_PCD, keep_PCD, new_PCD = act_PCH.chunk(3, 2)
        by_new_PCD = (1 - keep_PCD) * (1 - new_PCD * new_PCD)
        by_reset_PCD = by_new_PCD * own_PCH[..., 2 * D :] * reset_PCD * (1 - reset_PCD)
        by_keep_PCD = (h_PCD[:-1] - new_PCD) * keep_PCD * (1 - keep_PCD)
        by_PC3D = torch.stack([by_reset_PCD, by_keep_PCD, by_new_PCD * reset_PCD], 2)
        dh_PCD = grads[0].clone(memory_format=torch.contiguous_format)
        d_PC3D, w_HD = torch.empty_like(by_PC3D), w_DH.mT
        stacked = (dh_PCD, d_PC3D, d_PC3D.flatten(2), by_PC3D, keep_PCD)
        steps = list(zip(*(x.unbind() for x in stacked), strict=True))
        later: tuple[Tensor, Tensor, Tensor] | None = None
        for dh, d_C3D, d_CH, by_C3D, keep in reversed(steps):
            if later is not None:
                dh.addcmul_(later[0], later[1]).addmm_(later[2], w_HD)
            torch.mul(dh[:, None], by_C3D, out=d_C3D)
            later = dh, keep, d_CH
        d_PCH = d_PC3D.flatten(2)
        dw_DH = h_PCD[:-1].flatten(0, 1).mT @ d_PCH.flatten(0, 1)
        in_PCH = torch.cat([d_PCH[..., : 2 * D], dh_PCD * by_new_PCD], 2)
        return in_PCH, dw_DH, d_PCH.sum((0, 1))
