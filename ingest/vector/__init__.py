"""Many lines at once: lines that look alike but for their digits, read as the regexes read one.

The regexes of a format say what a line means; this room only makes them needed less often. A log
repeats a few shapes of line millions of times: the same bytes, but for runs of digits. So

    learning    a line that the regexes have read becomes a *shape*. What each of its runs of digits
                does is asked of the regexes themselves: a digit is changed, the line is read again,
                and what has become of the row tells (a column, with its factor; a stamp; a text).
                Widths and padding are tried likewise, of all numbers of the line at once, and of
                half of them at a time where the line then says something else.
    trust       then the shape reads random lines of its own kind; one that is not read as the
                regexes read it, to the bit, discredits the shape.
    fitting     lines of a fitting length are walked through from their starts, all at once in
                numpy: a shape is fixed stretches, which are compared by words of eight bytes (and
                digits may be any), with numbers between them whose digits are counted.
    layouts     how most lines of a shape are laid out becomes a shape of fixed widths: lines as
                long as it are compared with it as a whole.
    decoding    digits are read eight at a time: 15 of them and a power of ten up to 22 are exact in
                a double, so that one division rounds as float() does. Longer ones, as repr() prints
                them, Polars reads, which rounds as float() does too
                (tests/ingest/vector/test_shapes.py holds it to that).

A line that fits no shape to the last byte, that has a number too long to be exact, or a date that
is none, is left to the regexes. Nothing here knows any format, and nothing depends on it.
"""
