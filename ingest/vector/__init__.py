"""Reading of many lines at once, with the results of the regexes.

The regexes of a format define the meaning of a line; this package only calls them less often. A log
repeats a few shapes of line millions of times: the same bytes, except for runs of digits. So

    learning    a line read by the regexes becomes a *shape*. The regexes also show the effect of
                every run of digits: a digit is changed, the line is read again, and the change of
                the row shows the effect (a column, with a factor; a stamp; a text).
                Widths and padding are tried in the same way, for all numbers of the line at once,
                and for half of them at a time where the line then reads differently.
    trust       the shape then reads random lines of the same kind; a single difference from the
                regexes, in any bit, discredits the shape.
    fitting     lines of a fitting length are walked through from their starts, all at once in
                numpy: a shape is fixed stretches, compared by words of eight bytes (any digit may
                match), with numbers of counted digits between them.
    layouts     the layout of most lines of a shape becomes a shape of fixed widths: lines of the
                same length are compared with the layout as a whole.
    decoding    digits are read eight at a time: 15 of them and a power of ten up to 22 are exact in
                a double, so a single division rounds as float() does. Longer numbers, as repr()
                prints them, are parsed by Polars, which rounds as float() does too
                (tests/ingest/vector/test_shapes.py checks this).

A line stays with the regexes if any byte fits no shape, a number is too long to be exact, or a date
is invalid. Nothing here knows any format, and no result depends on this package.
"""
