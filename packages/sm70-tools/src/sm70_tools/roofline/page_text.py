"""The prose of docs/roofline.md."""

from __future__ import annotations

INTRODUCTION = """\
<!-- Written by `python -m sm70_tools.roofline page`; a test compares it. Do not edit. -->

# Roofline: what a model predicts

No V100, RTX 8000 or T4 was at hand when this project was written. This page says what a model of the strip
kernels ([NVFP4](kernels/nvfp4.md)) predicts for them, and how far off the model is where it could be
compared: on an H200, which runs the same sources, and on the public figures of
[v100-skinny](https://github.com/Peuqui/v100-skinny) (MIT licence), whose kernels are built alike. `sm70
roofline --device v100` prints predictions for any shape.

**A prediction is not a measurement.** It serves to find what limits a kernel and to notice a card that is
slower than it should be.

## Model

A launch is a row of waves: as many blocks as registers, shared memory and warps allow run on every SM at
once, then the next. For one wave of B blocks, the busiest SM holds b = ceil(B / SMs) of them. A block has U
units of K, a unit is 2304 bytes of weight, and W warps share the units. Cycles:

```text
memory    B * U * 2304 / (read bandwidth per cycle)
latency   ceil(U / W) * iteration + 2 * L_memory
iteration max(serial(L_x), L_memory + serial(0) - cover)
pipes     b * U * max(issue, tensor port, FP16, integer, IMAD) / 4
L1        b * U * lines(M) * C_line
L2        bytes of x * miss / 64

time      T_launch + (C_start + L_memory + |sum over waves of (memory, latency, pipes, L1, L2)|) / clock
|v|       (sum of v_i ^ 2) ^ (1 / 2): the terms overlap in part
```

- `serial(L)` is the duration of one iteration of a lone warp whose loads of x take L cycles. It is a replay
  of the loop's own control bits: every instruction's stall count, and its waits for loads of x.
- `cover` is the time between the loads of the next unit and the first wait for them, from the same control
  bits.
- `L_x` is the latency of L2 in the first wave; afterwards that of L1, as far as x fits into what shared
  memory leaves.
- `lines(M)` counts 128-byte lines that quarters of a warp touch: on 7.0 four rows of x each, from 7.5 on
  two.
- `miss` is 1 in the first wave, then the part of x that does not fit into L1.

More rows than the strip kernel takes go to the general kernel, which is not modelled. For them only a bound
is given: the weight once through memory and one launch."""

CONSTANTS = """\
## Constants

The exponent 2 of the norm is chosen: with the other constants fitted anew, the largest error stays between
12 and 18 % for exponents from 1.7 to 2.3 on the H200's rows and on the public figures of either card;
smaller ones miss the figures by more, larger ones the rows. `T_launch` is 0.85 us, measured on an H200 with
an empty kernel in a CUDA graph and taken over. The fitted constants are the numbers with the least sum of
fourth powers of logarithmic errors (`python -m sm70_tools.roofline fit`): those of 9.0 on measured rows,
those of 7.0 and 7.5 on the public figures that the last table marks. A fitted constant also takes up what
the model leaves out, so it is no measurement of its name."""

COMPARISON = """\
## Where it was compared"""

LIMITS = """\
## What to keep in mind

- The rows of the H200 compare this project's kernels in their build for 9.0: other instructions, and a strip
  of 16 columns, as on 7.5 but not on 7.0, where it is 64. What the 7.x loops cost on their cards is compared
  with nothing.
- The public figures compare the model of the cards, through kernels whose instruction counts, loads in
  flight (two units a warp) and shared memory are partly assumed: their authors publish the structure, not
  the loop.
- The model makes QPN, with four warps, up to a quarter slower than it is on single shapes at M = 8 (not
  fitted to): its loads in flight are assumed. Packed activations on the RTX 8000, also not fitted to, are
  off by up to a fifth.
- The public figures of the RTX 8000 are of kernels with `m8n8k4`, which this project runs on 7.0 only. The
  constants fitted to them serve its `m16n8k8` kernels. The model takes both instructions for equally fast per
  multiply-add on 7.5; the authors found them equal in their kernel, which L1 limits.
- The launch cost of 0.85 us is not known for the older cards; the public figures fit about as well with 2.5
  us. A microsecond more adds a microsecond to each time, which matters for the smallest shapes.
- Clocks are taken as constant. The T4's are assumed, and so is its bandwidth."""
