#!/usr/bin/env python3
"""Random blocks of the invented formats and the floats they stand for, by numpy and nothing of Lumen's: NAME.blocks, NAME.f32.
Run by hand when a format is added; the tests only read what it wrote."""
import os
import re
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
F = np.float32
rng = np.random.default_rng(20260)


def raw(n, size):
    return rng.integers(0, 256, (n, size), dtype=np.uint8)


def put(blocks, at, values):
    """values, an array [n, ..] of some dtype, as the bytes of each block from `at` on."""
    b = np.ascontiguousarray(values).view(np.uint8).reshape(len(blocks), -1)
    blocks[:, at:at + b.shape[1]] = b


def halves(n, k=1, scale=0.01):
    return (rng.standard_normal((n, k)) * scale).astype("<f2")


def bf16(v):
    return (np.ascontiguousarray(v, "<f4").view("<u4") >> 16).astype("<u2")


def bf16_value(u):
    return (u.astype("<u4") << 16).view("<f4")


def nibbles(bytes_, low_first=True):
    lo, hi = bytes_ & 15, bytes_ >> 4
    return np.stack([lo, hi] if low_first else [hi, lo], -1).reshape(len(bytes_), -1).astype(int)


def bits(bytes_):
    return np.unpackbits(bytes_, axis=-1, bitorder="little").astype(int)


def odd15(n):
    b = raw(n, 36)
    d = halves(n)
    put(b, 0, d)
    s = (b[:, 2:6] & 63).astype(F)
    step = d.astype(F) * s                                        # [n, 4]
    return b, np.repeat(step, 15, axis=1) * (nibbles(b[:, 6:]) - 8).astype(F)


def plane5(n):
    b = raw(n, 44)
    d, m = halves(n), halves(n, scale=0.1)
    put(b, 40, d)
    put(b, 42, m)
    planes = bits(b[:, :40]).reshape(n, 5, 64)
    q = sum(planes[:, k] << k for k in range(5))
    return b, d.astype(F) * q.astype(F) + m.astype(F)


def signmag6(n):
    b = raw(n, 26)
    d = halves(n)
    put(b, 24, d)
    minus, high = bits(b[:, 0:4]), bits(b[:, 4:8])
    low = np.concatenate([b[:, 8:24] & 15, b[:, 8:24] >> 4], axis=1).astype(int)
    mag = low + 16 * high
    return b, d.astype(F) * np.where(minus == 1, -mag, mag).astype(F)


def penta(n):
    b = raw(n, 36)
    b[:, :32] = rng.integers(0, 125, (n, 32))
    b[0, :32] = np.arange(93, 125)
    d = halves(n, 2)
    put(b, 32, d)
    c = b[:, :32].astype(int)
    q = np.stack([c % 5, c // 5 % 5, c // 25], -1).reshape(n, 96)
    return b, np.repeat(d.astype(F), 48, axis=1) * (q - 2).astype(F)


def blockbook(n):
    b = raw(n, 64)
    book = halves(n, 8, 0.3)
    put(b, 0, book)
    index = bits(b[:, 16:]).reshape(n, 128, 3) @ np.array([1, 2, 4])
    return b, np.take_along_axis(book, index, axis=1).astype(F)


def ladder(n):
    b = raw(n, 20)
    d = halves(n)
    first = rng.integers(-40, 41, (n, 1)).astype("<i2")
    put(b, 0, d)
    put(b, 2, first)
    return b, d.astype(F) * (first + np.cumsum(nibbles(b[:, 4:]) - 8, axis=1)).astype(F)


def bigend(n):
    b = raw(n, 56)
    d = (np.abs(rng.standard_normal((n, 1))) * 0.01).astype(">f4")
    z = rng.integers(90, 167, (n, 1)).astype(">u2")
    z[0] = 258                                                    # the high byte counts
    put(b, 0, d)
    put(b, 4, z)
    b[:, 54:] = 0
    return b, d.astype(F) * (b[:, 6:54].astype(int) - z.astype(int)).astype(F)


def powers(n):
    b = raw(n, 20)
    d = (np.abs(rng.standard_normal((n, 1))) * 0.1).astype("<f4")
    put(b, 0, d)
    q = nibbles(b[:, 4:], low_first=False)
    v = d * (F(0.5) ** (q & 7)).astype(F)
    return b, np.where(q >= 8, -v, v)


def pairgrid(n):
    text = open(os.path.join(HERE, "pairgrid.lum"), encoding="utf-8").read()
    rows = np.array([int(x) for x in re.findall(r"-?\d+", text[text.index("= [") : text.index("]")])]).reshape(64, 4)
    b = raw(n, 20)
    d = bf16(rng.standard_normal((n, 1)) * 0.002)
    put(b, 0, d)
    c = b[:, 4:]
    v = rows[c & 63]
    v = np.where((c & 64 != 0)[..., None], v[..., ::-1], v)
    v = np.where((c & 128 != 0)[..., None], -v, v).reshape(n, 64)
    step = bf16_value(d) * (1 + 2 * nibbles(b[:, 2:4])).astype(F)
    return b, np.repeat(step, 16, axis=1) * v.astype(F)


def outlier(n):
    b = raw(n, 25)
    at = rng.integers(0, 40, n)
    at[0], at[1], at[2] = 0, 39, 200                              # 200: a block without one
    d, real = bf16(rng.standard_normal((n, 1)) * 0.01), halves(n, scale=2)
    b[:, 0] = at
    put(b, 1, d)
    put(b, 3, real)
    c = nibbles(b[:, 5:])
    c = np.where(c > 7, c - 16, c)
    v = bf16_value(d) * c.astype(F)
    v = np.where(np.arange(40) == at[:, None], real.astype(F), v)
    return b, v


def oddments(n):
    b = raw(n, 26)
    w = rng.integers(0, 7**10, (n, 4), dtype=np.uint64)
    w[0] = [2**32 - 1, 2**31, 2**31 - 1, 7**9 - 1]                # more than ten digits hold: the highest digit goes on
    d = halves(n)
    put(b, 0, w.astype("<u4"))
    put(b, 24, d)
    put(b, 16, rng.integers(0, 256, (n, 5), dtype=np.uint8))
    digits = np.stack([w // 7**k % 7 for k in range(10)], -1).reshape(n, 40).astype(np.int64)
    by = b[:, 21:22].astype(np.int64) + 1
    sh = np.repeat(nibbles(b[:, 16:21]) & 7, 4, axis=1)
    u = b[:, 22:24].copy().view("<u2").astype(np.int64)
    v = ((digits - 3) << sh) - (np.int64(-256) >> sh) + (u * 40 + digits) // by % 11
    return b, d.astype(F) * v.astype(F)


def apart(n):
    b = raw(n, 168)
    d = halves(n, 8)
    z = rng.integers(-20, 21, (n, 8)).astype(np.int8)
    put(b, 0, d)
    put(b, 16, z)
    w = b[:, 24:].reshape(n, 48, 3).astype(int) @ np.array([65536, 256, 1])
    q = np.stack([w >> 18, w >> 12 & 63, w >> 6 & 63, w & 63], -1).reshape(n, 192)
    return b, np.repeat(d.astype(F), 24, axis=1) * (q - np.repeat(z.astype(int) + 32, 24, axis=1)).astype(F)


for make in (odd15, plane5, signmag6, penta, blockbook, ladder, bigend, powers, pairgrid, outlier, oddments, apart):
    blocks, values = make(24)
    assert values.dtype == np.float32, make.__name__
    blocks.tofile(os.path.join(HERE, make.__name__ + ".blocks"))
    values.astype("<f4").tofile(os.path.join(HERE, make.__name__ + ".f32"))
