"""The log says that it is faster. Is it? A notebook; open it with: marimo edit is_it_faster.py"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="full")

with app.setup:
    from math import log

    import marimo as mo
    import polars as pl

    from fairmfu.ingest import read_logs
    from fairmfu.metrics import analyse, choose
    from fairmfu.reports import compare, draw, explain, per_step, report


@app.cell
def _():
    mo.md("""
    # The log says that it is faster. Is it?

    One model, one kind of device, two frameworks. Megatron-DeepSpeed prints more TFLOP/s than
    Torchtitan. Should we move? The logs here are synthetic; put yours in their place.
    """)
    return


@app.cell
def _():
    samples = mo.notebook_dir().parents[1] / "sample_logs" / "synthetic"
    tables = read_logs(samples / "megatron-deepspeed", samples / "torchtitan")
    a, b = "llama3-8b-8xh100-megatron-deepspeed", "llama3-8b-8xh100-torchtitan"
    return a, b, tables


@app.cell
def _(a, b, tables):
    analysis = analyse(tables)
    printed = choose(analysis.metrics, a, b)["logged_tflops"]
    claim = printed[0] / printed[1]
    mo.md(f"""
    ## What the logs say

    {printed[0]:.0f} and {printed[1]:.0f} TFLOP/s per GPU: by the logs the first is
    **{claim:.2f}x** as fast.
    """)
    return analysis, claim


@app.cell
def _(a, analysis, b):
    compared = compare(analysis, a, b)
    mo.md("## By one formula\n\n" + "\n\n".join(compared.sentences))
    return (compared,)


@app.cell
def _(compared):
    compared.table.select(
        "name",
        pl.col("tgs", "tgs_low", "tgs_high", "tflops", "logged_tflops").round(1),
        pl.col("relative_tgs", "mfu").round(4),
    )
    return


@app.cell
def _(tables):
    draw("comparison", report(tables)).chart()
    return


@app.cell
def _():
    mo.md("""
    ## Why the log says otherwise

    From the printed figure to ours, factor by factor: what the framework's own formula counts
    as work that ours does not, or the other way round.
    """)
    return


@app.cell
def _(a, analysis):
    bridge = analysis.bridges(choose(analysis.metrics, a)["run_id"][0])[0]
    pl.DataFrame([{"cause": f.cause, "factor": f.factor, "what": f.text} for f in bridge.factors])
    return (bridge,)


@app.cell
def _(a, tables):
    draw("waterfall", report(tables, a)).chart()
    return


@app.cell
def _():
    mo.md("""
    ## Is the pace steady?

    Windows that hold start-up, warm-up, a checkpoint or an evaluation are not counted.
    """)
    return


@app.cell
def _(analysis):
    pace = per_step(analysis)
    pace.group_by("name", "window").agg(
        windows=pl.len(), median_tgs=pl.col("tgs").median().round(1)
    ).sort("name", "window")
    return (pace,)


@app.cell
def _(a, analysis):
    mo.plain_text(explain(analysis, a))
    return


@app.cell
def _(a, b, bridge, claim, compared):
    most = max(bridge.factors, key=lambda factor: abs(log(factor.factor)))
    tgs = dict(compared.table.select("name", "tgs").iter_rows())
    mo.md(f"""
    ## So

    The logs said {claim:.2f}x; by one formula it is {tgs[a] / tgs[b]:.2f}x. The largest cause:
    {most.text}, x{1 / most.factor:.2f} in the log of {a}.
    """)
    return


if __name__ == "__main__":
    app.run()
