"""Charts as Vega-Lite, and the process that renders them."""
