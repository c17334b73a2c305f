"""Goodput as a page: one control a constraint."""

import marimo

app = marimo.App(app_title="kvescrow: goodput")


@app.cell
def imports():
    from functools import partial
    from pathlib import Path

    import marimo as mo

    from kvescrow.checks.experiments.coefficients import read_coefficients
    from kvescrow.checks.experiments.goodput import Constraints, goodput
    from kvescrow.checks.experiments.plotting import figure_of

    file = mo.cli_args().get("cost")
    ask = partial(goodput, coefficients=read_coefficients(Path(file) if file else None))
    return Constraints, ask, figure_of, mo


@app.cell
def controls(Constraints, mo):
    usual = Constraints()
    gap = mo.ui.slider(5, 200, 1, usual.gap // 1000, label="token gap of the chat (ms)", show_value=True)
    first = mo.ui.slider(50, 2000, 50, usual.first_token // 1000, label="its first token (ms)", show_value=True)
    late = mo.ui.slider(
        500, 10000, 500, usual.document_first_token // 1000, label="first token of a document (ms)", show_value=True
    )
    document = mo.ui.slider(1000, 32000, 1000, usual.document, label="document (tokens)", show_value=True)
    every = mo.ui.slider(100, 1000, 50, usual.document_every // 1000, label="a document every (ms)", show_value=True)
    chats = mo.ui.slider(50, 1000, 50, usual.chat_every // 1000, label="a chat request every (ms)", show_value=True)
    mo.vstack([mo.md("# Goodput"), gap, first, late, document, every, chats])
    return chats, document, every, first, gap, late


@app.cell
def result(Constraints, ask, chats, document, every, figure_of, first, gap, late, mo):
    asked = Constraints(
        gap.value * 1000, first.value * 1000, late.value * 1000, document.value, every.value * 1000, chats.value * 1000
    )
    experiment = ask(asked)
    page = [experiment.question, experiment.as_markdown(), experiment.inputs_as_markdown()]
    mo.vstack([mo.md(page[0]), mo.as_html(figure_of(experiment)), *map(mo.md, page[1:])])


if __name__ == "__main__":
    app.run()
