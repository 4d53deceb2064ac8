"""Program for any Python that has torch: times PyTorch's math path of attention on a GPU.

Standard input and output are JSON.
"""

import json
import statistics
import sys
from typing import Any

_WARM, _REPEAT = 3, 20


def times(question: dict[str, Any]) -> dict[str, Any]:
    """The times of all problems, None where one fails; without them `torch` has the reason."""
    try:
        import torch  # noqa: PLC0415 - it may be missing, which is an answer
    except ImportError as error:
        return {"times": [], "torch": f"PyTorch was not timed: {error}"}
    if not torch.cuda.is_available():
        return {"times": [], "torch": f"PyTorch was not timed: {torch.__version__} finds no GPU"}
    torch.cuda.set_device(question["number"])
    return {
        "times": [_milliseconds(torch, problem) for problem in question["problems"]],
        "torch": torch.__version__,
    }


def _milliseconds(torch: Any, problem: dict[str, Any]) -> float | None:
    try:
        return _median(torch, problem)
    except RuntimeError:  # out of memory, or a type that the GPU's math path lacks
        torch.cuda.empty_cache()
        return None


def _median(torch: Any, problem: dict[str, Any]) -> float:
    attention = torch.nn.functional.scaled_dot_product_attention
    backward = problem["step"] == "backward"
    dtype = getattr(torch, problem["dtype"])

    def made(rows: int) -> Any:
        shape = (problem["batch"], problem["heads_q"], rows, problem["head_dim"])
        return torch.randn(shape, device="cuda", dtype=dtype, requires_grad=backward)

    q, k, v = made(problem["seqlen_q"]), made(problem["seqlen_k"]), made(problem["seqlen_k"])
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
        out = attention(q, k, v, is_causal=problem["causal"])
        gradient = torch.randn_like(out)

        def work() -> None:
            if backward:
                torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)
            else:
                attention(q, k, v, is_causal=problem["causal"])

        took = []
        for _ in range(_WARM + _REPEAT):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            took.append(begin.elapsed_time(end))
    return float(statistics.median(took[_WARM:]))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(times(json.load(sys.stdin))) + "\n")
