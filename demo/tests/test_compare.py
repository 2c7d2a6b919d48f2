import pytest

from sm70_demo.compare import Comparison, compare, is_rounding_alone, rounding_gap
from sm70_demo.scores import TokenScores, read_passage

REFERENCE = TokenScores((5, 6, 7, 8, 9), (-1.0, -2.0, -3.0, -4.0), (6, 7, 1, 1))


def test_compare_counts_agreement_and_signs() -> None:
    candidate = TokenScores((5, 6, 7, 8, 9), (-1.5, -1.5, -3.0, -5.0), (6, 2, 1, 3))
    result = compare(REFERENCE, candidate, min_positions=4)
    assert result == Comparison(
        positions=4, top1_agreement=0.5, mean_difference=-0.25, mean_absolute_difference=0.5
    )


def test_compare_with_itself_is_exact() -> None:
    result = compare(REFERENCE, REFERENCE, min_positions=4)
    assert result == Comparison(4, 1.0, 0.0, 0.0)


def test_describe_prints_the_numbers() -> None:
    text = Comparison(465, 0.725, -0.1117, 0.4503).describe()
    assert "72.5% of 465" in text
    assert "-0.1117" in text
    assert "0.4503" in text


def test_other_tokens_are_refused() -> None:
    other = TokenScores((5, 6, 7, 8, 1), REFERENCE.logprobs, REFERENCE.top1)
    with pytest.raises(ValueError, match="different tokens"):
        compare(REFERENCE, other, min_positions=4)


def test_too_few_positions_are_refused() -> None:
    with pytest.raises(ValueError, match="4 positions are too few: the comparison needs 256"):
        compare(REFERENCE, REFERENCE)


@pytest.mark.parametrize(
    ("engine", "plain", "alone"),
    [(-0.11, -0.115, True), (-0.11, -0.13, False), (-0.13, -0.11, False), (0.01, -0.01, False)],
)
def test_rounding_gap_uses_both_signs(engine: float, plain: float, alone: bool) -> None:
    first, second = Comparison(300, 0.7, engine, 0.4), Comparison(300, 0.7, plain, 0.4)
    assert rounding_gap(first, second) == pytest.approx(abs(engine - plain))
    assert is_rounding_alone(first, second) is alone


def test_scores_survive_json() -> None:
    assert TokenScores.from_json(REFERENCE.to_json()) == REFERENCE


def test_scores_of_uneven_length_are_refused() -> None:
    with pytest.raises(ValueError, match="5 tokens need 4"):
        TokenScores((5, 6, 7, 8, 9), (-1.0, -2.0, -3.0, -4.0), (6, 7, 1))


def test_passage_is_long_enough_for_the_comparison() -> None:
    assert len(read_passage().split()) > 330
