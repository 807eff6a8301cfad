"""`tritonsmith resume`: go on with a run that was stopped or killed, or that waited for replies or verdicts in files."""

from tritonsmith.cli.options import FasterOption, JsonOption, RunArgument, err


def resume(run: RunArgument, fail_unless_faster: FasterOption = False, as_json: JsonOption = False) -> None:
    """Go on with RUN, also a suite, where it stopped; a finished one only tells its result. Exit codes as those of `optimize`."""
    from pathlib import Path

    from tritonsmith.graph.suites.folder import is_suite, read_suite

    if is_suite(Path(run)):
        from tritonsmith.cli.screen.suite_answer import carry_out

        carry_out(read_suite(Path(run)), Path(run), must_be_faster=fail_unless_faster, as_json=as_json)
    from tritonsmith.cli.screen.answer import answer
    from tritonsmith.cli.screen.progress import open_progress
    from tritonsmith.graph.run import resume as resume_run

    with open_progress(err) as progress:
        summary = resume_run(run, on_event=progress)
    answer(summary, as_json, must_be_faster=fail_unless_faster)
