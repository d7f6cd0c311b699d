"""JSON bodies to rows of numbers in one compiled pass, without an object for each number: `read_json` in api/formats.py
calls `read` here, for one body or for many at once.

Good is a body that is exactly an object of "points" and "labels", or "point" and "label", in either order: rows of d
numbers, every label one of the session's, as many labels as points, every ‖x‖² ≤ most. Any other body, whatever is the
matter with it, is for orjson, slower, which says what that is. Nothing is taken that orjson would not take, and a
number is the same float64 to the bit.

A number is m·10^e, m of at most 19 digits, which are read eight at a time: a word of eight digits is summed in pairs,
the pairs in fours, the fours in an eight, by three multiplications. m·10^e is rounded as Eisel and Lemire do it (D.
Lemire, Number parsing at a gigabyte per second, 2021): the upper 128 bits of m·5^e give the 53 bits of the result. The
shorter way of Clinger for few digits is left out: which way the next number goes is a toss, and to guess wrong costs
more.

A label is found by its bytes: an integer, a string without escapes, true or false as JSON writes them, in a hash table.

While it reads, a function that finds something amiss goes to the end of the body, where nothing more is found; and a
number that it cannot tell is NaN, so that ‖x‖² ≤ most is false. Behind the end of a body every byte counts as 0.
Addresses, not arrays, are handed on: a compiled function counts references to its arrays at each call. Numba's cache
watches only the file a function is written in, so everything compiled is here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numba.extending
import numpy as np
import orjson
from llvmlite import ir
from numpy.typing import NDArray

from service.learners.loops import OPTIONS, Counts, F, Floats, inlined, njit

types: Any = numba.types
_i8, _u8, _f8 = types.int64, types.uint64, types.float64
Words = NDArray[np.uint64]
#: In compiled code integers keep their sign or have none; an operation of both would make a float of them.
S: Any = np.int64
U: Any = np.uint64


def compiled(*signature: Any) -> Callable[[F], F]:
    """Compile now, or load from the cache: every worker reads JSON"""
    return cast(Callable[[F], F], njit(*signature, **OPTIONS))


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function that is written in the instructions of LLVM: it returns its signature, and what writes them"""
    return numba.extending.intrinsic(function)


# ------------------------------------------------------------------------------------ what Numba has no word for


@intrinsic
def _address(context: Any, array: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return _i8(array), code


@intrinsic
def _word_at(context: Any, address: Any) -> Any:
    """The eight bytes at an address, the first lowest, wherever it lies"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.load(builder.inttoptr(arguments[0], ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return _u8(_i8), code


@intrinsic
def _byte_at(context: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return builder.zext(byte, ir.IntType(64))

    return _i8(_i8), code


@intrinsic
def _put(context: Any, address: Any, x: Any) -> Any:
    """A float64 to an address"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], ir.DoubleType().as_pointer()))
        return context.get_dummy_value()

    return types.void(_i8, _f8), code


@intrinsic
def _float_of(context: Any, bits: Any) -> Any:
    """The float64 that has these bits"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return _f8(_u8), code


@intrinsic
def _times(context: Any, a: Any, b: Any) -> Any:
    """a·b in 128 bits: the upper and the lower 64"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        a, b = (builder.zext(each, wide) for each in arguments)
        product = builder.mul(a, b)
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return context.make_tuple(builder, signature.return_type, (upper, builder.trunc(product, word)))

    return types.UniTuple(_u8, 2)(_u8, _u8), code


@intrinsic
def _zeros_below(context: Any, word: Any) -> Any:
    """How many bits below the lowest that is set; 64: none is"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return _i8(_u8), code


@intrinsic
def _zeros_above(context: Any, word: Any) -> Any:
    """How many bits above the highest that is set; 64: none is"""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return _i8(_u8), code


# ------------------------------------------------------------------------------------------------------- bytes


@inlined
def _byte(text: int, i: int, end: int) -> int:
    return _byte_at(text + i) if i < end else 0


@inlined
def _word(text: int, i: int, end: int) -> Any:
    """Eight bytes, the first lowest; end ≥ 8"""
    if i + 8 <= end:
        return _word_at(text + i)
    return _word_at(text + end - 8) >> U(8 * (i + 8 - end)) if i < end else U(0)


@inlined
def _skip(text: int, i: int, end: int) -> int:
    """Where white space ends"""
    while i < end:
        byte = _byte_at(text + i)
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        i += 1
    return i


# ----------------------------------------------------------------------------------------------------- numbers

_TEN = np.array([10**k for k in range(8)], dtype=np.uint64)
_LEAST, _MOST = -342, 308


def _power_of_five(q: int) -> int:
    """The upper 128 bits of 5^q: rounded down for q ≥ 0, up for q < 0"""
    five: int = 5 ** abs(q)
    if q >= 0:
        return five << 128 >> five.bit_length()
    bits = five.bit_length()
    return (1 << (bits + 127)) // five + 1 if q >= -27 else ((1 << (2 * bits + 128)) // five + 1) >> (bits + 1)


#: The upper 64 bits, then the lower 64, of each
_FIVE = np.array(
    [half for q in range(_LEAST, _MOST + 1) for half in divmod(_power_of_five(q), 1 << 64)], dtype=np.uint64
)

_DIGITS, _BEYOND_9, _SIGNS = U(0x3030303030303030), U(0x7676767676767676), U(0x8080808080808080)
_PAIRS, _FOURS, _EIGHT = U(0x0F0F0F0F0F0F0F0F), U(0x00FF00FF00FF00FF), U(0x0000FFFF0000FFFF)


@inlined
def _eight(word: Any) -> Any:
    """The number that eight digits make, each in a byte of its own, the first lowest"""
    word = (word & _PAIRS) * U(10 * 2**8 + 1) >> U(8)
    word = (word & _FOURS) * U(100 * 2**16 + 1) >> U(16)
    return (word & _EIGHT) * U(10_000 * 2**32 + 1) >> U(32)


@inlined
def _digits(text: int, i: int, end: int, m: Any) -> tuple[Any, int]:
    """m·10^k + the number that the next k digits make, and where they end; modulo 2⁶⁴"""
    while True:
        word = _word(text, i, end) ^ _DIGITS  # a digit's byte is now its value
        k = _zeros_below(((word + _BEYOND_9) | word) & _SIGNS) >> 3
        if k < 8:
            last = word << U(8) << U(56 - 8 * k)  # zeros before the k. Named `word`, Numba 0.68 would add it to m above
            return m * _TEN[U(k)] + _eight(last), i + k
        m = m * U(100_000_000) + _eight(word)
        i += 8


@compiled()
def _leading_zeros(text: int, i: int) -> int:
    """The zeros that a number other than 0 begins with, the point left out"""
    zeros = 0
    while _byte_at(text + i) == 48 or _byte_at(text + i) == 46:
        zeros += _byte_at(text + i) == 48
        i += 1
    return zeros


@inlined
def _rounded(m: Any, e: int, sign: Any) -> float:
    """±m·10^e, m > 0, by Eisel and Lemire; NaN where it is left open, or is no normal number"""
    if e < _LEAST or e > _MOST:
        return math.nan
    above = _zeros_above(m)
    at = 2 * (e - _LEAST)
    upper, lower = _times(m << U(above), _FIVE[U(at)])
    if upper & U(0x1FF) == U(0x1FF):  # what the lower half of the power adds may carry
        more, _ = _times(m << U(above), _FIVE[U(at + 1)])
        lower += more
        if lower < more:
            upper += U(1)
        if lower == U(0xFFFFFFFFFFFFFFFF):
            return math.nan
    carry = upper >> U(63)
    bits = upper >> (carry + U(9))
    exponent = (217706 * e >> 16) + 1086 + S(carry) - above  # 217706/2¹⁶ ≈ log₂ 10
    if lower <= U(1) and -4 <= e <= 23 and bits & U(3) == U(1) and bits << (carry + U(9)) == upper:
        bits ^= U(1)  # halfway, exactly: to even
    bits = (bits + (bits & U(1))) >> U(1)
    if bits == U(1 << 53):
        bits >>= U(1)
        exponent += 1
    if exponent <= 0 or exponent >= 2047:
        return math.nan
    x: float = _float_of((bits ^ U(1 << 52)) | U(exponent) << U(52) | sign)
    return x


@compiled()
def _exponent(text: int, i: int, end: int) -> tuple[int, int]:
    """What is behind an e, and where it ends"""
    sign = _byte(text, i, end)
    i += sign == 45 or sign == 43
    found, after = _digits(text, i, end, U(0))
    if after == i or after > i + 8:
        return 0, end
    return -S(found) if sign == 45 else S(found), after


@inlined
def _number(text: int, i: int, end: int) -> tuple[float, int]:
    """A number as JSON writes it, NaN if it cannot be told here; and where it ends"""
    negative = _byte(text, i, end) == 45
    i += negative
    first, m, e = i, U(0), 0
    if _byte(text, i, end) == 48:
        i += 1
    else:
        m, i = _digits(text, i, end, m)
    count = i - first
    if count == 0:
        return math.nan, end
    byte = _byte(text, i, end)
    whole = byte != 46
    if not whole:
        m, after = _digits(text, i + 1, end, m)
        e = i + 1 - after
        if e == 0:
            return math.nan, end
        count -= e
        i = after
        byte = _byte(text, i, end)
    if count > 19 and (m == U(0) or count - _leading_zeros(text, first) > 19):
        return math.nan, end
    if byte | 32 == 101:
        whole = False
        scale, i = _exponent(text, i + 1, end)
        e += scale
    if m == U(0):
        return -0.0 if negative and not whole else 0.0, i  # -0 is the integer 0, to orjson too
    return _rounded(m, e, U(negative) << U(63)), i


# ---------------------------------------------------------------------------------- labels: words of a table
#
# How many slots there are less one, and the seed of the hash; of each slot where its token is (in words), how long (in
# bytes, 0: the slot is empty) and the class; then the tokens, each filled up with zeros to whole words.

_MASK, _SEED, _SLOTS = range(3)


@inlined
def _part(text: int, i: int, stop: int, end: int) -> Any:
    """Eight bytes of a token that ends at `stop`, zeros behind it"""
    word = _word(text, i, end)
    return word if i + 8 <= stop else word & ((U(1) << U(8 * (stop - i))) - U(1))


@inlined
def _same(token: int, text: int, start: int, stop: int, end: int) -> bool:
    for i in range(start, stop, 8):
        if _word_at(token + i - start) != _part(text, i, stop, end):
            return False
    return True


@inlined
def _slot(table: int, text: int, start: int, stop: int, end: int) -> int:
    """The address of the slot that holds the token, or of the empty one in which it belongs"""
    h, mask = _word_at(table + 8 * _SEED), _word_at(table + 8 * _MASK)
    for i in range(start, stop, 8):
        upper, lower = _times(h ^ _part(text, i, stop, end), U(0x9E3779B97F4A7C15))
        h = upper ^ lower
    while True:
        slot: int = table + 8 * (_SLOTS + 3 * S(h & mask))
        length = S(_word_at(slot + 8))
        token = table + 8 * S(_word_at(slot))
        if length == 0 or (length == stop - start and _same(token, text, start, stop, end)):
            return slot
        h += U(1)


@compiled(types.void(types.uint64[::1], types.int64[::1], types.int64[::1]))
def _fill(words: Words, lengths: Counts, classes: Counts) -> None:
    """Put the tokens, which are in their place, into slots"""
    table = _address(words)
    where = _SLOTS + 3 * (S(words[_MASK]) + 1)
    for token in range(lengths.size):
        address = table + 8 * where
        at = (_slot(table, address, 0, lengths[token], lengths[token] + 7 & -8) - table) // 8
        words[at], words[at + 1], words[at + 2] = where, lengths[token], classes[token]
        where += (lengths[token] + 7) // 8


_COMMAS, _SPACES, _BRACES, _ONES = U(0x2D2D2D2D2D2D2D2D), U(0x2020202020202020), U(0x7D7D7D7D7D7D7D7D), _SIGNS >> U(7)


@inlined
def _bare_end(text: int, i: int, end: int) -> int:
    """Where a number or a word ends: at a byte up to the comma, or at ] or }, which differ in the bit of the space"""
    while True:
        word = _word(text, i, end)
        brace = (word | _SPACES) ^ _BRACES
        k: int = _zeros_below((((word - _COMMAS) & ~word) | ((brace - _ONES) & ~brace)) & _SIGNS) >> 3
        if k < 8:
            return i + k
        i += 8


@inlined
def _label(table: int, text: int, i: int, end: int, to: int) -> int:
    """Write a label's class; where the label ends"""
    stop = i + 1
    if _byte(text, i, end) == 34:
        while stop < end and _byte_at(text + stop) != 34:
            stop += 1
        stop += 1
    else:
        stop = _bare_end(text, i, end)
    if stop > end:
        return end
    slot = _slot(table, text, i, stop, end)
    if _word_at(slot + 8) == U(0):
        return end
    _put(to, np.float64(_word_at(slot + 16)))
    return stop


# ------------------------------------------------------------------------------------------------------ bodies


@inlined
def _row(d: int, most: float, text: int, i: int, end: int, to: int) -> int:
    """Write the numbers of a point; where it ends"""
    xx = 0.0
    if _byte(text, i, end) != 91:
        return end
    for j in range(d):
        x, i = _number(text, _skip(text, i + 1, end), end)
        _put(to + 8 * j, x)
        xx += x * x
        i = _skip(text, i, end)
        if _byte(text, i, end) != (44 if j < d - 1 else 93):
            return end
    return i + 1 if xx <= most else end


@compiled()
def _rows(d: int, most: float, text: int, i: int, end: int, to: int, width: int, room: int) -> tuple[int, int]:
    """Write a list of points, `width` numbers from one to the next; how many, and where the list ends"""
    if _byte(text, i, end) != 91:
        return 0, end
    for n in range(room):
        i = _row(d, most, text, _skip(text, i + 1, end), end, to + 8 * width * n)
        i = _skip(text, i, end)
        byte = _byte(text, i, end)
        if byte != 44:
            return n + 1, i + 1 if byte == 93 else end
    return 0, end


@compiled()
def _labels(table: int, text: int, i: int, end: int, to: int, width: int, room: int) -> tuple[int, int]:
    """Write the classes of a list of labels, `width` numbers from one to the next; how many, and where the list ends"""
    if _byte(text, i, end) != 91:
        return 0, end
    for n in range(room):
        i = _label(table, text, _skip(text, i + 1, end), end, to + 8 * width * n)
        i = _skip(text, i, end)
        byte = _byte(text, i, end)
        if byte != 44:
            return n + 1, i + 1 if byte == 93 else end
    return 0, end


_POINTS, _LABELS, _POINT, _LABEL = 1, 2, 4, 8
_KEYS = [U(int.from_bytes(key, "little")) for key in (b'"points"', b'"labels"', b'"point"', b'"label"')]
_KEY_POINTS, _KEY_LABELS, _KEY_POINT, _KEY_LABEL = _KEYS


@compiled()
def _key(text: int, i: int, end: int) -> int:
    """Which of the keys it is, 0: none"""
    word = _word(text, i, end)
    if word == _KEY_POINTS:
        return _POINTS
    if word == _KEY_LABELS:
        return _LABELS
    word &= U((1 << 56) - 1)
    return _POINT if word == _KEY_POINT else _LABEL if word == _KEY_LABEL else 0


@compiled()
def _body(table: int, d: int, most: float, text: int, i: int, end: int, to: int, width: int) -> int:
    """Write the rows of a body; how many, or -1"""
    room = (end - i) // (2 * d + 1)
    seen, points, labels = 0, 0, 0
    i = _skip(text, i, end)
    if room == 0 or end < 8 or _byte(text, i, end) != 123:
        return -1
    while True:
        i = _skip(text, i + 1, end)
        key = _key(text, i, end)
        if key == 0 or seen & key or (width == d and key & (_LABELS | _LABEL)):
            return -1
        seen |= key
        i = _skip(text, i + (8 if key & (_POINTS | _LABELS) else 7), end)
        if _byte(text, i, end) != 58:
            return -1
        i = _skip(text, i + 1, end)
        if key == _POINTS:
            points, i = _rows(d, most, text, i, end, to, width, room)
        elif key == _LABELS:
            labels, i = _labels(table, text, i, end, to + 8 * d, width, room)
        elif key == _POINT:
            points, i = 1, _row(d, most, text, i, end, to)
        else:
            labels, i = 1, _label(table, text, i, end, to + 8 * d)
        i = _skip(text, i, end)
        if _byte(text, i, end) != 44:
            break
    if _byte(text, i, end) != 125 or _skip(text, i + 1, end) != end:
        return -1
    if width == d:
        return points if seen == _POINTS or seen == _POINT else -1
    return points if (seen == _POINTS | _LABELS or seen == _POINT | _LABEL) and points == labels else -1


@compiled(_i8(types.Bytes(types.uint8, 1, "C"), types.int64[::1], types.uint64[::1], _f8, types.float64[:, ::1], _i8))
def read(text: bytes, sizes: Counts, words: Words, most: float, rows: Floats, d: int) -> int:
    """Write the rows of bodies of so many bytes, each of which is replaced by its number of rows; how many in all"""
    table, address, to, width = _address(words), _address(text), _address(rows), rows.shape[1]
    n, start = 0, 0
    for body in range(sizes.size):
        end = start + sizes[body]
        sizes[body] = _body(table, d, most, address, start, end, to + 8 * width * n, width)
        n += max(sizes[body], 0)
        start = end
    return n


# --------------------------------------------------------------------------------------- what a session's bodies hold


@dataclass(frozen=True, eq=False)
class Table:
    """What a body must hold to be read here: rows of d numbers whose squares are together at most `most`, and labels,
    the tokens of which are in `words`"""

    d: int
    most: float
    words: Words
    width: int  # numbers of a row that is read: d, and one for the label if there is to be one

    def anywhere(self, d: int) -> Table:
        """The same labels behind points of d numbers, whatever these are"""
        return Table(d, math.inf, self.words, d + 1)


def table(d: int, most: float, labels: Sequence[str | int]) -> Table:
    """The table of a session. 1.0, which is how many programs write a 1, is one"""
    tokens: dict[bytes, int] = {}
    for index, label in enumerate(labels):
        for token in _spellings(label):
            tokens[token] = index
    return Table(d, most, _hashed(tokens), d + 1)


@lru_cache(maxsize=1024)
def without_labels(d: int) -> Table:
    return Table(d, math.inf, np.zeros(_SLOTS + 3, dtype=np.uint64), d)


def _spellings(label: str | int) -> list[bytes]:
    """How a label may be written, as far as it is read here"""
    if type(label) is int:
        return [b"%d" % label, b"%d.0" % label] if abs(label) <= 1 << 53 else [b"%d" % label]
    try:
        token = orjson.dumps(label)
    except TypeError:  # a lone surrogate
        return []
    return [] if b"\\" in token else [token]


def _hashed(tokens: dict[bytes, int]) -> Words:
    """At most half of the slots are taken. The seed is drawn, so that nobody chooses labels that all want the same"""
    slots = 2 << len(tokens).bit_length()
    filled = b"".join(token + bytes(-len(token) % 8) for token in tokens)
    words = np.zeros(_SLOTS + 3 * slots + len(filled) // 8, dtype=np.uint64)
    words[_MASK], words[_SEED] = slots - 1, int.from_bytes(os.urandom(8), "little")
    words[_SLOTS + 3 * slots :] = np.frombuffer(filled, dtype="<u8")
    lengths, classes = list(map(len, tokens)), list(tokens.values())
    _fill(words, np.array(lengths, dtype=np.int64), np.array(classes, dtype=np.int64))
    return words
