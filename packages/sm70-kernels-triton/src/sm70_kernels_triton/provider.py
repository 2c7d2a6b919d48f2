"""The entry point of this package. It offers no kernel yet, so the policy finds it and passes it over."""

from sm70_kernels_triton.__about__ import __version__
from sm70_policy.provider import Provider

PROVIDER = Provider(
    name="triton",
    distribution="sm70-kernels-triton",
    version=__version__,
    contract=1,
    linear_kernels=(),
)
