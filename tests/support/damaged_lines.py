"""Logs with every damage that is seen in real ones, and more: what a fast reader may trip over.

Each log is told by its format and a seed. Lines are those of `log_lines` or the formats' own
examples with other numbers; then some or all of them are changed, byte by byte or number by
number, and lines are cut, glued, repeated and put elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Final

from fairmfu.ingest.decode.line_reader import MAX_LINE_BYTES
from fairmfu.ingest.formats.spec import LogFormat, StepLine
from tests.support.log_lines import BY_NAME, KINDS, NOISE_LINES, Style, blocks, noise

Damage = Callable[[bytes, Random], bytes]

NUMBER: Final = re.compile(rb"\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?")
DATE: Final = re.compile(rb"(?:(\d{4})[-/])?(\d\d)[-/](\d\d) (\d\d):(\d\d):(\d\d)")
COLOUR: Final = re.compile(rb"\x1b\[[\d;]*m")
GAP: Final = re.compile(rb"[ \t]+")
BLANKS: Final = (
    *(b"", b" ", b"  ", b"   ", b"\t", b" \t", b"\xc2\xa0", b"\xe2\x80\x89", b"\xe3\x80\x80"),
    *(b"\x0b", b"\x0c", b"\x1c", b"\xc2\x85", b"\xe2\x80\xa8", b"\r", b"\0"),
)
ODD: Final = (
    *(b"\0", b"\r", b"\xff", b"\xc3", b"\xe2\x80", b"\xf0\x9f\x92", b"\xc0\xaf", b"\xed\xa0\x80"),
    *(b"\xc2\xa0", b"\xef\xbb\xbf", b"\x1b", b"\x1b[", b"\x1b[0m", b"\x1b[1;31m", b"[32m", b"\x07"),
    *(b":", b"|", b"=", b",", b".", b"-", b"+", b"%", b"[", b"]", b'"', b"'", b"{", b"}", b"_"),
    *(b" ", b"0", b"7", b"e", b"E", b"\xd9\xa3", b"\xef\xbc\x95", b"\xc2\xb2", b"step: 3 ", b"/"),
)
"""What is put somewhere into a line; Arabic, wide and raised digits among it."""

WORDS_FOR_NUMBERS: Final = (
    *(b"nan", b"NaN", b"-nan", b"inf", b"-inf", b"Infinity", b"N/A", b"None", b"null", b"", b"-"),
    *(b"1e5", b"1E-05", b"1e400", b"1e-400", b"2.5e-3", b"1_000", b"0x1f", b"+1.5", b"-0.0", b".5"),
    *(b"5.", b"..", b"1.2.3", b"9007199254740993", b"9007199254740993.0", b"0.1000000000000000055"),
    *(b"2.2250738585072011e-308", b"9223372036854775807", b"9223372036854775808", b"00012", b"1 2"),
    *(b"0.30000000000000004", b"123456789.123456789", b"8.5000000000000000001", b"1,2,3", b"--"),
    *(
        b"1,234",
        b"12,34",
        b",5",
        b"5,",
        b"1 days, 2:03:04",
        b"1:02:03",
        b"99:99:99",
        b"1.5.",
        b"e5",
    ),
)
TAGS: Final = (
    *(b"[rank0]:", b"[rank12]:", b"[default3]:", b"[trainer1|0]:", b"[rank1]: ", b"3: ", b" 12: "),
    *(
        b"[1,4]<stdout>:",
        b"[1,4]<stderr>:",
        b"[rank0]:[rank0]:",
        b"[rank1]:[rank2]:",
        b"2: [rank7]:",
    ),
    *(
        b"[XTuner][RANK 5]",
        b"100%|###| 3/3 [00:01<00:00]",
        b"\rTraining: 3%|# | 1/9\r",
        b"> ",
        b"  ",
    ),
    *(b"\x1b[0m", b"[rank0]", b"[rank]:", b"rank0:", b"[rank1234567890]:", b"\xef\xbb\xbf", b"\r"),
)
WRONG_DATES: Final = (
    *(b"2026-13-01 10:00:00", b"2026-02-30 10:00:00", b"2026-00-10 10:00:00"),
    *(b"2026-11-20 24:00:00", b"2026-11-20 23:60:00", b"2026-11-20 23:59:60"),
    *(b"0000-01-01 00:00:00", b"9999-12-31 23:59:59", b"10000-01-01 00:00:00"),
    *(b"2024-02-29 12:00:00", b"2025-02-29 12:00:00", b"1970-01-01 00:00:00"),
    *(b"2026/13/01 10:00:00", b"2026/11/20 25:00:00", b"2026-11-20T10:00:00"),
    *(b"2026-11-20  10:00:00", b"26-11-20 10:00:00", b"2026-1-2 3:04:05", b"11/31 10:00:00"),
)
SHORT: Final = tuple(timedelta(milliseconds=ms) for ms in (-1001, -1000, -1, 0, 1, 999, 1000, 1001))
LONG: Final = tuple(timedelta(milliseconds=ms) for ms in (59_999, 60_000, 60_001, 3_600_000))
"""Between stamps: about as much as ranks in step are apart, and copies of a step."""
HELD: Final = (0.0, 0.003, 0.02, 0.2, 0.6)
"""Of each log so much is damaged line by line."""


# -- one line -------------------------------------------------------------------------------


def _put(line: bytes, draw: Random, what: bytes, instead: int = 0) -> bytes:
    place = draw.randrange(len(line) + 1)
    return line[:place] + what + line[place + instead :]


def _flip(line: bytes, draw: Random) -> bytes:
    changed = bytearray(line)
    for _ in range(draw.choice((1, 1, 1, 2, 5)) if line else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _any_byte(line: bytes, draw: Random) -> bytes:
    return _put(line, draw, bytes([draw.randrange(256)]), draw.randrange(2))


def _odd(line: bytes, draw: Random) -> bytes:
    return _put(line, draw, draw.choice(ODD), draw.randrange(2))


def _drop(line: bytes, draw: Random) -> bytes:
    return _put(line, draw, b"", draw.choice((1, 1, 2, 8, 40)))


def _cut(line: bytes, draw: Random) -> bytes:
    place = draw.randrange(len(line) + 1)
    return line[:place] if draw.random() < 0.7 else line[place:]


def _break(line: bytes, draw: Random) -> bytes:
    """A flush or a mailer wraps it; what is kept of the blank there differs."""
    return _put(line, draw, draw.choice((b"\n", b"\r\n", b"\n  ", b"\n\n")), draw.randrange(2))


def _swap(line: bytes, draw: Random) -> bytes:
    words = line.split(b" ")
    one, other = draw.randrange(len(words)), draw.randrange(len(words))
    words[one], words[other] = words[other], words[one]
    return b" ".join(words)


def _again(line: bytes, draw: Random) -> bytes:
    """A part of it twice: a key that comes again, a rotated buffer."""
    one, other = sorted((draw.randrange(len(line) + 1), draw.randrange(len(line) + 1)))
    return line[:other] + line[one:]


def _within(pattern: re.Pattern[bytes], change: Damage) -> Damage:
    """The change of one of the places that the pattern finds."""

    def changed(line: bytes, draw: Random) -> bytes:
        found = list(pattern.finditer(line))
        if not found:
            return line
        match = draw.choice(found)
        return line[: match.start()] + change(match[0], draw) + line[match.end() :]

    return changed


def _digits(number: bytes, draw: Random) -> bytes:
    """More or fewer digits, before the point or behind."""
    more = b"%d" % draw.randrange(10 ** draw.choice((1, 1, 1, 2, 3)))
    return draw.choice((number + more, more + number, number[1:], number[:-1], b"0" + number))


def _other_number(_number: bytes, draw: Random) -> bytes:
    whole = b"%d" % draw.randrange(10 ** draw.randrange(1, 26))
    return whole + b".%d" % draw.randrange(10 ** draw.randrange(1, 20)) * draw.randrange(2)


def _rewritten(number: bytes, draw: Random) -> bytes:
    """The same digits as another statement prints them."""
    decimals = b".%d" % draw.randrange(1000)
    grouped = b"%s,%s" % (number[:-3], number[-3:])
    forms = (b"+", b"-", b" ", b"0", b"--"), (b"e5", b"E+02", decimals, b"%", b".", b"f", b" GB")
    return draw.choice(
        (draw.choice(forms[0]) + number, number + draw.choice(forms[1]), grouped, b"[%s]" % number)
    )


def _of_decimals(number: bytes, draw: Random) -> bytes:
    """Some formats say something else of a number by how many it has."""
    wide = draw.randrange(1, 25)
    return b"%s.%0*d" % (number.partition(b".")[0], wide, draw.randrange(10**wide))


def _zeros(line: bytes, draw: Random) -> bytes:
    """Several numbers are 0 behind the time, or all: a run begins so, or nothing was counted."""
    begin = max((match.end() for match in DATE.finditer(line)), default=0)
    every = draw.random() < 0.5

    def zero(match: re.Match[bytes]) -> bytes:
        return b"0" if every or draw.random() < 0.5 else match[0]

    return line[:begin] + NUMBER.sub(zero, line[begin:])


def _word(_number: bytes, draw: Random) -> bytes:
    return draw.choice(WORDS_FOR_NUMBERS)


def _foreign_digits(number: bytes, draw: Random) -> bytes:
    """As `\\d` finds them too: Arabic or of double width."""
    zero = draw.choice(("\u0660", "\uff10", "\u0966"))
    text = number.decode("ascii", "replace")
    return "".join(chr(ord(zero) + int(c)) if c.isdecimal() else c for c in text).encode()


def _blank(_gap: bytes, draw: Random) -> bytes:
    return draw.choice(BLANKS)


def _no_colour(_colour: bytes, draw: Random) -> bytes:
    return draw.choice((b"", b"\x1b[m", b"\x1b[38;5;208m", b"[35m", b"\x1b[K", b"\x1b[2J", b"\x1b"))


def _tagged(line: bytes, draw: Random) -> bytes:
    return draw.choice(TAGS) + line


def _wrong_date(_date: bytes, draw: Random) -> bytes:
    return draw.choice(WRONG_DATES)


def _other_time(date: bytes, draw: Random) -> bytes:
    """A clock that was set: another hour, day or year."""
    first = draw.choice((0, 5, 8, 11, 14, 17))
    return date[:first] + b"%02d" % draw.randrange(13) + date[first + 2 :]


def _ended(line: bytes, draw: Random) -> bytes:
    return line + draw.choice(
        (b"\r", b"\r\r", b" ", b"  \t", b"\0\0", b"\xc2\xa0", b"|", b"\x1b[0m")
    )


def _long(line: bytes, draw: Random) -> bytes:
    """Longer than what is kept of a line; the step at its beginning or its end."""
    filling = draw.choice((b"x", b"=", b" step: 1 ", b"loss: 1.0 ")) * MAX_LINE_BYTES
    room = MAX_LINE_BYTES + draw.choice((*range(-len(line) - 1, 3 - len(line)), 0, 50_000))
    filling = filling[:room]
    return line + filling if draw.random() < 0.5 else filling + line


DAMAGES: Final[Sequence[Damage]] = (
    *(_flip, _any_byte, _odd, _odd, _drop, _cut, _break, _swap, _again, _tagged, _ended, _zeros),
    *(_within(NUMBER, change) for change in (_digits, _digits, _other_number, _rewritten)),
    *(_within(NUMBER, change) for change in (_word, _word, _foreign_digits, _of_decimals)),
    *(_within(GAP, _blank), _within(GAP, _blank), _within(COLOUR, _no_colour)),
    *(_within(DATE, change) for change in (_wrong_date, _other_time)),
)


# -- all lines ------------------------------------------------------------------------------


def _decimals(draw: Random) -> Damage:
    place, more = draw.randrange(6), b"%d" % draw.randrange(1, 1000)

    def changed(line: bytes, _draw: Random) -> bytes:
        found = [m for m in NUMBER.finditer(line) if b"." in m[0]]
        if len(found) <= place:
            return line
        end = found[place].end()
        return line[:end] + more + line[end:]

    return changed


def _column(draw: Random) -> Damage:
    """Another version prints one of the numbers otherwise."""
    place = draw.randrange(20)
    form = draw.choice(COLUMNS)

    def changed(line: bytes, _draw: Random) -> bytes:
        found = list(NUMBER.finditer(line))
        if len(found) <= place:
            return line
        match = found[-1 - place]
        return line[: match.start()] + form(match[0], draw) + line[match.end() :]

    return changed


def _places(number: bytes, draw: Random) -> bytes:
    """Many decimals, as repr prints them, or none."""
    digits = b"%d" % draw.randrange(10 ** draw.choice((1, 5, 15, 16, 17, 20)))
    return number.partition(b".")[0] + b"." + digits


def _large(_number: bytes, draw: Random) -> bytes:
    return b"%d" % draw.randrange(10 ** draw.choice((1, 3, 4, 7, 8, 9, 15, 16, 17, 18, 19, 20)))


def _grouped(_number: bytes, draw: Random) -> bytes:
    value = draw.randrange(10 ** draw.choice((2, 3, 4, 6, 7, 10)))
    return f"{value:{draw.choice((',', '_'))}}".encode()


def _scientific(_number: bytes, draw: Random) -> bytes:
    value = draw.uniform(-1, 1) * 10.0 ** draw.randrange(-12, 12)
    return f"{value:{draw.choice(('.4e', '.3E', '.17g', '', 'g'))}}".encode()


def _padded(number: bytes, draw: Random) -> bytes:
    text = b"%d" % draw.randrange(10 ** draw.randrange(1, 8))
    return draw.choice((text.rjust(8), text.rjust(6, b"0"), text.ljust(8), number))


def _signed(number: bytes, draw: Random) -> bytes:
    return draw.choice((b"-", b"", b"", b"+")) + draw.choice((number, b"0.0", b"0"))


COLUMNS: Final[Sequence[Damage]] = (
    *(_places, _places, _large, _grouped, _scientific, _padded, _signed),
    *(_digits, _word, _foreign_digits),
)


def _everywhere(draw: Random) -> Damage:
    """What another version, terminal or launcher does to every line."""
    tag, blank, end = draw.choice(TAGS[:14]), draw.choice(BLANKS[1:9]), draw.choice((b"\r", b" "))
    return draw.choice(
        (
            lambda line, _: tag + line,
            lambda line, _: line + end,
            lambda line, _: COLOUR.sub(b"", line),
            lambda line, _: line.replace(b"  ", b" "),
            lambda line, _: line.replace(b": ", b":   "),
            lambda line, _: line.replace(b" ", blank),
            lambda line, _: line.replace(b"[rank", b"[default"),
            lambda line, _: re.sub(rb"^\[\w+\]:", b"", line),
            lambda line, _: re.sub(rb"(?<=\d),(?=\d{3}\b)", b"", line),
            lambda line, _: b"\x1b[34m" + line + b"\x1b[0m",
            lambda line, _: b"   3%|#    | 3/99 [00:01<00:30]\r" + line,
            *(_decimals(draw), _column(draw), _column(draw), _column(draw), _column(draw)),
        )
    )


# -- whole logs -----------------------------------------------------------------------------


def damaged_log(form: LogFormat, seed: int, lines: int) -> bytes:
    """A log of that format of about so many lines; a few of the first steps are left whole."""
    draw = Random(f"{form.name} {seed}")  # noqa: S311 - no secret
    own = form.name in BY_NAME and draw.random() < 0.6
    texts = _written(form, draw, lines) if own else _from_examples(form, draw, lines)
    log = [text.encode("utf-8", "replace") for text in islice(texts, lines)]
    _headers(form, log, draw)
    _restarts(log, draw)
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        first, last = sorted((draw.randrange(len(log)), draw.randrange(len(log))))
        here = slice(first, last) if draw.random() < 0.7 else slice(None)
        change = _everywhere(draw)
        log[here] = [change(line, draw) for line in log[here]]
    share = draw.choice(HELD)
    whole = draw.choice((0, 20, 60))
    for place in range(whole, len(log)):
        if draw.random() < share:
            for _ in range(draw.choice((1, 1, 1, 2, 4))):
                log[place] = draw.choice(DAMAGES)(log[place], draw)
    if share:
        _misplaced(log, draw)
    if draw.random() < 0.1:
        place = draw.randrange(len(log))
        log[place] = _long(log[place], draw)
    text = b"\n".join(log)
    if form.addition is not None:
        text = SAID.sub(lambda match: _bar(match, draw), text)
    if draw.random() < 0.15:
        return text[: -draw.randrange(1, 200)]
    return text + b"\n" * draw.choice((0, 1, 1, 2))


SAID: Final = re.compile(rb" ?\(progress bar: step (\d+) of (\d+) after (\d+) s\)")
"""In an example, of a line behind it."""


def _bar(match: re.Match[bytes], draw: Random) -> bytes:
    """The line that says so, perhaps behind others."""
    step, total, seconds = (int(digits) for digits in match.groups())
    time = b"%02d:%02d" % divmod(seconds, 60)
    between = draw.choice((b"", b"", b"", b"", b"\n", b"\n \n", b"\r", b"other\n", b"\xc2\xa0\n"))
    bar = b" %3d%%|##  | %d/%d [%s<00:41,  1.2it/s]" % (seconds % 100, step, total, time)
    return b"\n" + between + bar + draw.choice((b"", b"", b"\r", b"\r" + bar))


def _written(form: LogFormat, draw: Random, lines: int) -> Iterator[str]:
    kind = BY_NAME[form.name]
    style = Style(ansi=draw.random() < 0.7, ranks=draw.choice((1, 2, 8)))
    density = draw.choice((0.1, 0.5, 0.9))
    more = _noise(form, draw)
    between = [draw.choice(more) for _ in range(min(lines, NOISE_LINES))]
    settings = {"density": density, "style": style, "between": between, "at_once": 50}
    for block, _ in blocks(kind, seed=draw.randrange(1000), **settings):
        yield from block


def _noise(form: LogFormat, draw: Random) -> list[str]:
    """Lines between the steps: of any framework, and now and then what the format knows."""
    kind = BY_NAME.get(form.name) or draw.choice(KINDS)
    plain = noise(kind, Style(), 1, 2_000)
    said = [varied(x.example, x.regex, draw) for x in (*form.facts, *form.events) for _ in range(3)]
    return [draw.choice(plain) for _ in range(20 * len(said) + 20)] + said


def _from_examples(form: LogFormat, draw: Random, lines: int) -> Iterator[str]:
    """Steps as the example of one kind of step line, with others among them, and noise."""
    main = draw.choice(form.steps)
    more, density = _noise(form, draw), draw.choice((0.3, 0.8, 1.0))
    clock, step = datetime(2026, 12, 31, 23, 55), 0
    every, ranks = draw.choice((1, 1, 1, 10)), draw.choice((1, 1, 2, 5))
    jumps = draw.choice((0.0, 0.0, 0.02))
    for number in range(lines):
        if number > 3 and draw.random() > density:
            yield draw.choice(more)
            continue
        line = main if draw.random() < 0.97 else draw.choice(form.steps)
        if ranks == 1:
            step, clock = step + every, clock + timedelta(microseconds=draw.randrange(2_000_000))
            yield next_step(form, line, draw, step, clock)
        else:  # of several processes, one of which is behind the others
            step, clock = step + draw.choice((0, 0, 1, 1, -1)), clock + draw.choice(SHORT)
            yield f"[rank{draw.randrange(ranks)}]:" * draw.randrange(2) + next_step(
                form, line, draw, max(step, 0), clock
            )
        if draw.random() < jumps:
            clock += draw.choice(LONG) * draw.choice((1, 1, -1))
            step = max(0, step - draw.choice((0, 0, 1, 5)))


def next_step(form: LogFormat, line: StepLine, draw: Random, step: int, at: datetime) -> str:
    """The example as printed at that step and time, with other numbers of the same look."""
    text = line.example
    keep: list[tuple[int, int]] = []
    match = re.search(line.regex, text)
    assert match is not None, line.example
    if "step" in match.groupdict() and match["step"] is not None:
        width = len(match["step"])
        text = f"{text[: match.start('step')]}{step:{width}d}{text[match.end('step') :]}"
        start = match.start("step")
        keep.append((start, start + max(width, len(str(step)))))
    for stamp in re.finditer(form.clock, text) if form.clock else ():
        printed = _told(stamp["stamp"], at)
        text = text[: stamp.start("stamp")] + printed + text[stamp.end("stamp") :]
        keep.append(stamp.span("stamp"))
    if draw.random() >= OTHER_FACTS and (again := re.search(line.regex, text)):
        for key in line.facts:  # another number of planned steps is another launch
            if key in again.groupdict():
                keep.append(again.span(key))
            elif pair := re.search(rf"\b{re.escape(key)}\W{{1,4}}([\d.]+)", text):
                keep.append(pair.span(1))
    return varied(text, line.regex, draw, keep)


OTHER_FACTS = 0.01
"""Of the step lines those that state other facts than the lines before."""


def _told(stamp: str, at: datetime) -> str:
    """The time in the form of another stamp."""
    groups = re.findall(r"\d+", stamp)
    if len(groups[0]) >= 10:  # from the epoch: s, ms or us
        micros = f"{round(at.timestamp() * 1_000_000)}"
        digits = iter(micros[: sum(map(len, groups))].ljust(sum(map(len, groups)), "0"))
    else:
        year = f"{at:%Y}" if len(groups[0]) == 4 else ""
        digits = iter(year + f"{at:%m%d%H%M%S}" + f"{at.microsecond:06}")
    return re.sub(r"\d", lambda _: next(digits), stamp)


def varied(text: str, regex: str, draw: Random, keep: Sequence[tuple[int, int]] = ()) -> str:
    """Other digits where the text has digits, if the regex still matches then."""

    def other(match: re.Match[str]) -> str:
        if any(match.start() < end and start < match.end() for start, end in keep):
            return match[0]
        digits = "".join(str(draw.randrange(10)) for _ in match[0])
        return digits if match[0][0] == "0" else digits.replace("0", "1", 1)

    found = re.sub(r"\d+", other, text)
    return found if re.search(regex, found) else text


def _headers(form: LogFormat, log: list[bytes], draw: Random) -> None:
    """What the format knows besides steps, at the beginning and somewhere else."""
    known = [[line.example] for line in (*form.facts, *form.events)]
    known += [list(block.example) for block in form.blocks]
    for place in (0, *(draw.randrange(len(log)) for _ in range(draw.choice((0, 0, 1, 3))))):
        some = draw.sample(known, min(len(known), draw.randrange(8)))
        log[place:place] = [text.encode() for lines in some for text in lines]


def _restarts(log: list[bytes], draw: Random) -> None:
    """Earlier lines come again: a launch that begins anew in the same file."""
    for _ in range(draw.choice((0, 0, 1, 2))):
        first = draw.randrange(len(log))
        again = log[first : first + draw.choice((1, 3, 40, 400))]
        place = draw.randrange(len(log))
        log[place:place] = again


def _misplaced(log: list[bytes], draw: Random) -> None:
    """Lines glued, out of order, twice, blank."""
    for _ in range(len(log) // draw.choice((30, 100, 300))):
        place = draw.randrange(len(log) - 1)
        kind = draw.randrange(5)
        if kind == 0:
            glue = draw.choice((b"", b"\r", b" ", b"\0"))
            log[place : place + 2] = [glue.join(log[place : place + 2])]
        elif kind == 1:
            log[place], log[place + 1] = log[place + 1], log[place]
        elif kind == 2:
            log.insert(place, log[draw.randrange(len(log))])
        elif kind == 3:
            log.insert(place, draw.choice((b"", b" ", b"\t", b"\r", b"\0", b"\xc2\xa0", b"\x0c")))
        else:
            one, other = log[place], log[place + 1]
            cut, into = draw.randrange(len(one) + 1), draw.randrange(len(other) + 1)
            log[place] = one[:cut] + other[into:]
