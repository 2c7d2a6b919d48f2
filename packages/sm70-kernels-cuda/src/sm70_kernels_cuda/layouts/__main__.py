"""`python -m sm70_kernels_cuda.layouts` prints the page of the layout."""

import sys

from sm70_kernels_cuda.layouts.lane_map import render

sys.stdout.write(render())
