"""Parts of torch without a public name of the same cost; the code that Inductor generates calls them too.

Without CUDA in torch's build there is no stream to ask for, and no call comes here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", int)  # noqa: SLF001
"""Raw handle of the current stream of a device. The public function builds an object first, for 4 us."""

exchange_device: Callable[[int], int] = torch.cuda._exchange_device  # noqa: SLF001
"""Make a device current; returns which one was. The public guard costs 5 us, more than a launch."""

restore_device: Callable[[int], int] = torch.cuda._maybe_exchange_device  # noqa: SLF001
"""Make that one current again, unless it would be the first to use it."""

empty_strided: Callable[..., Any] = torch._C._dynamo.guards._empty_strided_cuda  # noqa: SLF001
"""An uninitialized tensor on the current device, of a shape, strides and a dtype."""
