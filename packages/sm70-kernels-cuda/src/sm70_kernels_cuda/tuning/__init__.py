"""Choices of a kernel that somebody measured or a model predicted, as data with their origin."""
