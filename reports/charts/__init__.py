"""Charts as Vega-Lite, and the process that draws them."""
