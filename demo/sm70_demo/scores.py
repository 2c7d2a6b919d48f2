"""What one teacher-forced pass over the fixed passage gives: one record per engine and checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSAGE_FILE = Path(__file__).with_name("passage.txt")


@dataclass(frozen=True)
class TokenScores:
    """Scores of the passage's tokens after the first.

    `token_ids` (T+1) are all tokens of the passage; `logprobs` (T, natural log) and `top1` (T, token ids)
    belong to positions 1 to T: the log-probability of the token that stands there, and the token the model
    held likeliest.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top1: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ValueError where the three lengths do not fit together."""
        expected = len(self.token_ids) - 1
        if len(self.logprobs) != expected or len(self.top1) != expected:
            raise ValueError(
                f"{len(self.token_ids)} tokens need {expected} log-probabilities and top-1 ids, not "
                f"{len(self.logprobs)} and {len(self.top1)}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain lists for a JSON file."""
        return {"token_ids": list(self.token_ids), "logprobs": list(self.logprobs), "top1": list(self.top1)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TokenScores":
        """Return the scores that `to_json` wrote."""
        return cls(tuple(data["token_ids"]), tuple(data["logprobs"]), tuple(data["top1"]))


def read_passage() -> str:
    """Return the fixed English text of the comparison."""
    return PASSAGE_FILE.read_text(encoding="utf-8").strip()
