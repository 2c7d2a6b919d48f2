"""`python -m sm70_kernels_cuda.layouts NAME` prints the page of a layout."""

import argparse
import sys

from sm70_kernels_cuda.layouts.lane_map import LAYOUTS, render

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("name", choices=LAYOUTS)
sys.stdout.write(render(LAYOUTS[parser.parse_args().name]))
