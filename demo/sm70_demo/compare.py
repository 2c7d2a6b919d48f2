"""Compares two teacher-forced passes over the same tokens: pure functions, no engine."""

from dataclasses import dataclass
from statistics import fmean

from sm70_demo.scores import TokenScores

MIN_POSITIONS = 256
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Comparison:
    """How a candidate differs from a reference over `positions` tokens.

    `top1_agreement` is the share of positions where both hold the same token likeliest; the differences are
    candidate minus reference in natural-log probability of the actual token, as a mean and as a mean of
    magnitudes.
    """

    positions: int
    top1_agreement: float
    mean_difference: float
    mean_absolute_difference: float

    def describe(self) -> str:
        """Return one line for people."""
        return (
            f"top-1 agreement {self.top1_agreement:.1%} of {self.positions} positions, "
            f"log-probability difference mean {self.mean_difference:+.4f}, "
            f"mean magnitude {self.mean_absolute_difference:.4f}"
        )


def compare(reference: TokenScores, candidate: TokenScores, min_positions: int = MIN_POSITIONS) -> Comparison:
    """Return how `candidate` differs from `reference`.

    Raises ValueError where the tokens differ or fewer than `min_positions` positions can be compared.
    """
    if reference.token_ids != candidate.token_ids:
        raise ValueError(
            f"the passes saw different tokens ({len(reference.token_ids)} and {len(candidate.token_ids)}): "
            "tokenizer and passage must be the same"
        )
    positions = len(reference.logprobs)
    if positions < min_positions:
        raise ValueError(f"{positions} positions are too few: the comparison needs {min_positions}")
    differences = [b - a for a, b in zip(reference.logprobs, candidate.logprobs, strict=True)]
    agreed = sum(a == b for a, b in zip(reference.top1, candidate.top1, strict=True))
    return Comparison(
        positions=positions,
        top1_agreement=agreed / positions,
        mean_difference=fmean(differences),
        mean_absolute_difference=fmean(abs(d) for d in differences),
    )


def rounding_gap(engine: Comparison, plain: Comparison) -> float:
    """Return how far the engine's mean difference is from the one that NVFP4 rounding alone gives."""
    return abs(engine.mean_difference - plain.mean_difference)


def is_rounding_alone(engine: Comparison, plain: Comparison, tolerance: float = TOLERANCE) -> bool:
    """Say whether the engine's mean difference is that of rounding alone, within `tolerance`."""
    return rounding_gap(engine, plain) < tolerance
