"""Prefix ownership as a page: one control a constraint."""

import marimo

app = marimo.App(app_title="kvescrow: prefix ownership")


@app.cell
def imports():
    import marimo as mo

    from kvescrow.checks.experiments.plotting import figure_of
    from kvescrow.checks.experiments.prefix_ownership import Constraints, prefix_ownership

    return Constraints, figure_of, mo, prefix_ownership


@app.cell
def controls(Constraints, mo):
    usual = Constraints()
    sharers = mo.ui.slider(0, 8, 1, usual.sharers, label="requests that share", show_value=True)
    prefix = mo.ui.slider(1, 8, 1, usual.prefix, label="prefix (pages)", show_value=True)
    pool = mo.ui.slider(6, 40, 1, usual.pool, label="pool (pages)", show_value=True)
    in_flight = mo.ui.checkbox(usual.in_flight, label="a step is in flight when the first leaves")
    mo.vstack([mo.md("# Prefix ownership"), sharers, prefix, pool, in_flight])
    return in_flight, pool, prefix, sharers


@app.cell
def result(Constraints, figure_of, in_flight, mo, pool, prefix, prefix_ownership, sharers):
    experiment = prefix_ownership(Constraints(sharers.value, prefix.value, pool.value, in_flight.value))
    page = [experiment.question, experiment.as_markdown(), experiment.inputs_as_markdown()]
    mo.vstack([mo.md(page[0]), mo.as_html(figure_of(experiment)), *map(mo.md, page[1:])])


if __name__ == "__main__":
    app.run()
