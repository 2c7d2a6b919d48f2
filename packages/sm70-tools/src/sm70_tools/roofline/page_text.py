"""The prose of docs/roofline.md."""

from __future__ import annotations

INTRODUCTION = """\
<!-- Written by `python -m sm70_tools.roofline page`; a test compares it. Do not edit. -->

# Roofline: what a model predicts

No V100, RTX 8000 or T4 was at hand when this project was written. This page says what a model of the
strip and general kernels ([NVFP4](kernels/nvfp4.md)) predicts for them, and how far off the model is
where it could be compared: on an H200, which runs the same sources, and on the public figures of
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

For the general kernel a unit is a slab: 64 columns of K of the rows of one warp. T blocks share a
strip, one for each group of rows of x, and read it from memory once. Its warps along K take S slabs one
after the other, and x comes through shared memory, which is the same unit as L1:

```text
memory    (B / T) * (strip * K * 0.5625 + strip * M * 2) / (read bandwidth per cycle)
latency   S * iteration + 2 * L_memory
L1        b * U * (shared wavefronts + lines * C_line)
L2        b * (bytes of the block's x + (1 - 1 / T) * bytes of the strip) / 64
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
- `shared wavefronts` are passes of 128 bytes that a warp's reads and writes of shared memory take, one
  cycle each: 16 bytes a lane are four. The tests show that no two of them meet on a bank.
- The tensor port of 7.x runs at 65 % of its peak, the constant `VOLTA_TENSOR_EFFICIENCY`: dense FP16
  GEMMs of others reach 61 to 64 % on a V100 (public, not checked here); for 7.5 it is taken over.

For more than 64 rows the general kernel's predictions were compared with nothing, and a dense GEMM,
which takes over in the end, is not modelled. `sm70 roofline` gives a bound there: the weight once
through memory and one launch."""

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

GENERAL_COMPARISON = """\
General kernel, H200, rows of `linear.csv` of commit {commit} with M = 64: the operator ran the kernel in
the table. No constant is fitted to them. Rows of that commit with more of x, 512, are of the decoder with
a dense GEMM, those with up to 32 of cluster and strip kernels. Latency is the largest part of every row:
a slab hides at most {cover:.0f} of the {latency:.0f} cycles that its loads take. The model is a little
short on the shapes with a single wave of blocks: it leaves out the sum of the warps and the stores of y,
which other waves hide (an explanation, not a measurement)."""

CHOICE = """\
## Strip or general kernel on 7.x

us on a Tesla V100-SXM2-16GB, predicted: the best strip kernel, where there is one, / the kernel that
runs. A strip kernel's load of 16 bytes by 8 lanes touches four lines of L1, one for each row of x; the
general kernel reads rows from shared memory, where they lie on different banks. Therefore on 7.0 up to 8
rows run on the strip kernels and 9 or more on the general ones. On 7.5 a load touches two lines, and the
strip kernels serve up to 16 rows: from 9 to 16 the general kernel takes 12 % less to 6 % more time for N
from 2048 on, less on a T4 and about the same on an RTX 8000; from 17 on it is ahead. Shapes where another
choice saves 5 % or more are in the tuning table (`sm70_kernels_cuda/tuning/nvfp4.json`).

Three properties of the general kernel on 7.x come from the model:

- Up to six token tiles, and eight on 7.5, all loads of the next slab start before the slab. On 7.0 it
  hides nearly its own length of their latency, on 7.5 three quarters to nine tenths of it. Between the
  loads of x and its use they would share one of the six scoreboards of 7.x with x and be waited for with
  it: by the machine code, a slab then hides 310 to 500 cycles on 7.0, and 92 to 468 on 7.5 up to six
  tiles.
- Variants with strips of 64 columns for two to four token tiles: with 128, N = 4096 and 5120 leave half
  of a V100 idle. On 7.5 they are strips of 32.
- Variants for three token tiles, so that 24 rows do not cost what 32 do.

What is left: N / 64 blocks do not divide evenly by the multiprocessors. A split of K over blocks would
help, at the price of scratch memory; it is not built. The last but one column of the next table says
what it could give."""

TARGETS = """\
## Targets

Shares of 879 GB/s on a Tesla V100-SXM2-16GB that this project wants, with the tensor port at 65 %,
beside the predictions; M = 1 and 8 stand for 1 to 8. *With them overlapped* is the share if the largest
part hid all others, *with an even spread* the prediction for a general kernel whose work were spread
evenly over all multiprocessors. Nothing here is measured."""

LIMITS = """\
## What to keep in mind

- The model adds parts that overlap in part, and makes large memory-bound launches slower than they are:
  see QPN2 with the largest weight, lm_head, on the V100 at M = 1 above. Targets for M = 1 and 8 lie
  inside that error.
- Bandwidth of L2 is nominal, 64 bytes a cycle for each SM; microbenchmarks of all of V100 and T4 give
  about 20 (public, not checked here). With the latter, the general kernel's rows of the H200 would be
  off by {low:+.0%} to {high:+.0%}. Rows of the tuning table hold for either.
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
- Fetching instructions is not modelled. The loops of the general kernels with three and more tiles take 25 to
  40 KiB on 7.0, more than the instruction caches next to the sub-cores hold, and 8 to 13 KiB on 7.5.
- Clocks are taken as constant. The T4's are assumed, and so is its bandwidth."""
