"""Which author a `--model` names."""

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.nodes.model_author import ModelAuthor
from tritonsmith.prompts.author import Author
from tritonsmith.prompts.recipe_author import RecipeAuthor


def make_author(model: str = "offline", base_url: str | None = None) -> Author:
    """`offline` is the built-in author; `openai:NAME` asks a model over the OpenAI protocol. Raises UsageError for anything else."""
    if model == "offline":
        return RecipeAuthor()
    provider, colon, name = model.partition(":")
    if provider == "openai" and colon and name:
        return ModelAuthor.connect(name, base_url)
    raise UsageError(f"--model {model}: no such author; use offline or openai:NAME (--base-url names other servers)")
