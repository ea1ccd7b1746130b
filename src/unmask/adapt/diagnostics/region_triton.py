"""The best region as a Triton kernel: one program per row, with as many rounds as that row's budget has.

Its oracle is `region.best_region`, which walks over all rows together and so has to know the largest budget. Needs
Triton: `region` loads it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor

NEVER = tl.constexpr(float("-inf"))


@triton.jit
def _later(one: tensor, at_one: tensor, other: tensor, at_other: tensor) -> tensor:
    """Return the larger of two values and its place, or the second of two equal values."""
    take = other >= one
    return tl.where(take, other, one), tl.where(take, at_other, at_one)


@triton.jit
def _walk(
    gain: tensor,
    toll: tensor,
    place: tensor,
    budget: tensor,
    values: tensor,
    places: tensor,
    back: tensor,
    out: tensor,
    W: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """Find the best set of one row, with a round for each selected position, and mark it in `out`.

    Position i stands at i + 2. `values` and `places` hold the results of a round: the next reads its neighbours'.
    """
    row = tl.program_id(0).to(tl.int64)
    rounds = tl.load(budget + row).to(tl.int32)
    gain, place, out = gain + row * W, place + row * W, out + row * (W + 1)
    toll += row * (W + 1)
    values, places = values + row * 2 * WIDE, places + row * WIDE
    back += row * (W + 1) * WIDE
    y = tl.arange(0, WIDE)
    real = (y >= 2) & (y < W + 2)
    gain_Y = tl.load(gain + y - 2, mask=real, other=NEVER)
    toll_Y = tl.load(toll + y - 2, mask=real, other=0.0)
    end_Y = tl.load(toll + y - 1, mask=real, other=0.0)
    tl.store(values + y, tl.full((WIDE,), NEVER, tl.float64))
    tl.store(values + WIDE + y, tl.full((WIDE,), 0.0, tl.float64))
    tl.store(places + y, tl.full((WIDE,), 1, tl.int32))
    tl.debug_barrier()
    done = tl.full((), 0, tl.int32)
    while done < rounds:
        stayed = tl.load(values + y - 1, mask=y >= 1, other=NEVER)
        opened = tl.load(values + WIDE + y - 2, mask=y >= 2, other=NEVER) - toll_Y
        before = tl.load(places + y - 2, mask=y >= 2, other=1)
        tl.store(back + done * WIDE + y, tl.where(stayed >= opened, y - 1, before), mask=real)
        run = tl.where(real, tl.where(stayed >= opened, stayed, opened) + gain_Y, NEVER)
        closed, closed_at = tl.associative_scan((run - end_Y, y), 0, _later)
        tl.debug_barrier()
        tl.store(values + y, run)
        tl.store(values + WIDE + y, closed)
        tl.store(places + y, closed_at)
        tl.debug_barrier()
        done += 1
    # Back from the last selected position; who has none left stands before the first place.
    at = tl.load(places + W + 1)
    while done > 0:
        found = tl.load(place + at - 2, mask=at >= 2, other=W)
        tl.store(out + tl.where(found < 0, W, found), 1)
        done -= 1
        at = tl.load(back + done * WIDE + at, mask=done > 0, other=0)


def best_sets(gain_BW: Tensor, toll_BX: Tensor, place_BW: Tensor, budget_B: Tensor) -> Tensor:
    """Return the best set of each row as a mask; the arguments are those that `region.best_region` computes."""
    batch, width = gain_BW.shape
    wide, device = 1 << (width + 1).bit_length(), gain_BW.device
    values = torch.empty(batch, 2, wide, dtype=torch.float64, device=device)
    places = torch.empty(batch, wide, dtype=torch.int32, device=device)
    back = torch.empty(batch, width + 1, wide, dtype=torch.int32, device=device)
    out = torch.zeros(batch, width + 1, dtype=torch.uint8, device=device)
    arguments = (gain_BW.contiguous(), toll_BX.contiguous(), place_BW.contiguous(), budget_B.contiguous())
    with torch.cuda.device_of(gain_BW):
        _walk[(batch,)](*arguments, values, places, back, out, W=width, WIDE=wide, num_warps=4)
    return out[:, :width].bool()
