"""Teacher-forced scores from plain torch: `transformers` on the CPU, FP16 weights, all arithmetic in float32.

Float32 leaves the rounding of the weights as the only difference between two checkpoints.
"""

from pathlib import Path

from sm70_demo.scores import TokenScores


def score_with_torch(checkpoint: Path, text: str) -> TokenScores:
    """Return the scores of `text` under the model in `checkpoint`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    token_ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.inference_mode():
        logprobs = model(input_ids=token_ids).logits[0, :-1].log_softmax(-1)
    actual = logprobs.gather(1, token_ids[0, 1:, None])[:, 0]
    return TokenScores(
        token_ids=tuple(token_ids[0].tolist()),
        logprobs=tuple(actual.tolist()),
        top1=tuple(logprobs.argmax(-1).tolist()),
    )
