from dataclasses import dataclass

import pytest

from sm70_demo.engine import EngineResult, scores_of
from sm70_demo.scores import TokenScores


@dataclass(frozen=True)
class Candidate:
    logprob: float
    rank: int


def test_actual_token_and_likeliest_token_are_told_apart() -> None:
    positions = [None, {20: Candidate(-0.5, 1)}, {9: Candidate(-0.1, 1), 30: Candidate(-7.0, 812)}]
    assert scores_of([10, 20, 30], positions) == TokenScores((10, 20, 30), (-0.5, -7.0), (20, 9))


@pytest.mark.parametrize(
    "last",
    [None, {}, {9: Candidate(-0.1, 1)}, {30: Candidate(-7.0, 812)}],
    ids=["none", "empty", "own", "best"],
)
def test_missing_values_are_refused(last: dict[int, Candidate] | None) -> None:
    with pytest.raises(ValueError, match="position 2"):
        scores_of([10, 20, 30], [None, {20: Candidate(-0.5, 1)}, last])


def test_result_survives_json() -> None:
    scores = TokenScores((1, 2), (-0.5,), (2,))
    result = EngineResult("0.0", 1.0, 2.0, 96, (("a", "b"),), scores)
    assert EngineResult.from_json(result.to_json()) == result
    assert result.tokens_per_second == 48.0
