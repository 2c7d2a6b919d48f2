"""Version of this distribution, and of the contract between the policy and its providers."""

__version__ = "0.1.0.dev0"

CONTRACT_VERSION: int = 1
