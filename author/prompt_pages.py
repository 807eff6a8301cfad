"""Writes prompts as documents: `python -m tritonsmith.author.prompt_pages FILE.json ...`.

FILE.json holds briefs by stage, `{"seed": Brief, "repair": Brief, ...}`; the prompt of each is written next to it as FILE_STAGE.md.
"""

import sys
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tritonsmith.author.examples import prompt_for
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.templates.render import STAGES

_Briefs = TypeAdapter(dict[str, Brief])


def read_briefs(file: Path) -> dict[str, Brief]:
    """Briefs by stage. Raises UsageError with a sentence that names the file."""
    try:
        briefs = _Briefs.validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} holds no briefs by stage ({str(error).splitlines()[0]}); write {{'seed': brief, ...}}") from None
    unknown = [stage for stage in briefs if stage not in STAGES]
    if unknown:
        raise UsageError(f"{file}: {unknown[0]} is no stage; there are {', '.join(STAGES)}")
    return briefs


def documents(file: Path) -> dict[Path, str]:
    """The documents that belong to a file of briefs, with their text. Raises UsageError."""
    made = {}
    for stage, brief in read_briefs(file).items():
        prompt = prompt_for(stage, brief)
        head = f"<!-- {stage} of {brief.task.name}; templates {prompt.version}, at most {prompt.tokens} tokens; written by {_COMMAND} -->"
        made[file.with_name(f"{file.stem}_{stage}.md")] = f"{head}\n\n{prompt.text}"
    return made


_COMMAND = "python -m tritonsmith.author.prompt_pages"


def main(arguments: list[str]) -> int:
    """Write the documents of every file; returns the exit code."""
    try:
        if not arguments:
            raise UsageError(f"name files of briefs: {_COMMAND} docs/prompts/39_gru.json")
        for argument in arguments:
            for path, text in documents(Path(argument)).items():
                path.write_text(text, encoding="utf-8")
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
