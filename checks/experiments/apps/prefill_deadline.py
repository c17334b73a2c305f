"""The prefill deadline as a page: one control a constraint."""

import marimo

app = marimo.App(app_title="kvescrow: prefill deadline")


@app.cell
def imports():
    from functools import partial
    from pathlib import Path

    import marimo as mo

    from kvescrow.checks.experiments.coefficients import read_coefficients
    from kvescrow.checks.experiments.plotting import figure_of
    from kvescrow.checks.experiments.prefill_deadline import Constraints, prefill_deadline

    file = mo.cli_args().get("cost")
    ask = partial(prefill_deadline, coefficients=read_coefficients(Path(file) if file else None))
    return Constraints, ask, figure_of, mo


@app.cell
def controls(Constraints, mo):
    usual = Constraints()
    gap = mo.ui.slider(5, 100, 1, usual.gap // 1000, label="token gap (ms)", show_value=True)
    deadline = mo.ui.slider(100, 5000, 100, usual.deadline // 1000, label="deadline (ms)", show_value=True)
    prompt = mo.ui.slider(1024, 131072, 1024, usual.prompt, label="prompt (tokens)", show_value=True)
    decodes = mo.ui.slider(0, 256, 1, usual.decodes, label="decoding sequences", show_value=True)
    context = mo.ui.slider(0, 32000, 500, usual.context, label="context of each (tokens)", show_value=True)
    largest = mo.ui.slider(256, 16384, 256, usual.largest, label="largest chunk (tokens)", show_value=True)
    mo.vstack([mo.md("# Prefill deadline"), gap, deadline, prompt, decodes, context, largest])
    return context, deadline, decodes, gap, largest, prompt


@app.cell
def result(Constraints, ask, context, deadline, decodes, figure_of, gap, largest, mo, prompt):
    asked = Constraints(
        gap.value * 1000, deadline.value * 1000, prompt.value, decodes.value, context.value, largest.value
    )
    experiment = ask(asked)
    page = [experiment.question, experiment.as_markdown(), experiment.inputs_as_markdown()]
    mo.vstack([mo.md(page[0]), mo.as_html(figure_of(experiment)), *map(mo.md, page[1:])])


if __name__ == "__main__":
    app.run()
