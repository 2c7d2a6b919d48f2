"""The entry point of this package. It offers no kernel yet, so the policy finds it and passes it over."""

from sm70_moe.__about__ import __version__
from sm70_policy.provider import Provider

PROVIDER = Provider(
    name="moe",
    distribution="sm70-moe",
    version=__version__,
    contract=1,
    linear_kernels=(),
)
