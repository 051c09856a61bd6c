#!/usr/bin/env python3
"""Make tests/golden/ops/quant.golden.zst: the exact bytes and scales of every kind of quantisation.

    make_quant_golden.py                    run from the top of the tree; plain Python, and zstd

The witness of tests/kernels/op/test_quant.c. Nothing here knows how rounding is done in bits: the values of
all codes are written down from the definition of the format, and the nearest is looked for, the even
one of two. Arrays (format: golden_format.py): SHAPE/x, and SHAPE.KIND.TYPE/data and /scale.
"""
import math
import random
import struct

import golden_file

OUT = "tests/golden/ops/quant.golden.zst"
BLOCK = 128
TYPES = {"e4m3": (3, 7, 448.0, 0x7F), "e5m2": (2, 15, 57344.0, 0x7E)}  # mantissa bits, bias, largest, NaN
KINDS = {"tensor": (None, None), "row": (1, None), "1x128": (1, BLOCK), "128x128": (BLOCK, BLOCK)}
SHAPES = ((3, 130), (130, 3), (2, 300))
SMALLEST_SCALE = 2.0**-126


def f32(v):
    """v rounded to float32. A quotient of two float32 worked out in double rounds as in float32."""
    return struct.unpack("<f", struct.pack("<f", v))[0]


def finite_codes(mantissa_bits, bias, largest):
    """[(value, code)] of the codes that are positive and finite."""
    out, one = [], 1 << mantissa_bits
    for code in range(128):
        exponent, mantissa = divmod(code, one)
        if exponent == 0:
            value = mantissa / one * 2.0 ** (1 - bias)
        else:
            value = (1 + mantissa / one) * 2.0 ** (exponent - bias)
        if value <= largest:
            out.append((value, code))
    return out


def nearest(codes, value):
    """The code nearest to |value|, the even one of two, with the sign of value."""
    magnitude = min(abs(value), codes[-1][0])
    _, code = min(codes, key=lambda c: (abs(c[0] - magnitude), c[1] % 2))
    return code | (0x80 if math.copysign(1, value) < 0 else 0)


def scale_of(values, largest):
    amax = max((abs(v) for v in values if not math.isnan(v)), default=0)
    return max(f32(amax / largest), SMALLEST_SCALE) if amax > 0 else 1.0


def quantize(x, shape, kind, kind_of_float):
    """x: the matrix as a list of its elements. Lists of codes and of scales."""
    mantissa_bits, bias, largest, nan = kind_of_float
    codes, (n, d) = finite_codes(mantissa_bits, bias, largest), shape
    height, width = KINDS[kind][0] or n, KINDS[kind][1] or d
    data, scales = [None] * (n * d), []
    for i in range(0, n, height):
        for j in range(0, d, width):
            block = [r * d + c for r in range(i, min(i + height, n)) for c in range(j, min(j + width, d))]
            scale = scale_of([x[k] for k in block], largest)
            scales.append(scale)
            for k in block:
                data[k] = nan if math.isnan(x[k]) else nearest(codes, f32(x[k] / scale))
    return data, scales, [-(-n // height), -(-d // width)]


def draw(n, d, rng):
    """Six orders of magnitude, and what is special: a tie, both zeros, NaN, a row of nothing, and
    numbers whose scale would be below the normal ones."""
    x = [f32(rng.gauss(0, 1) * 10.0 ** rng.randint(-3, 2)) for _ in range(n * d)]
    x[:3] = [7 * 448.0, 7 * 25.0, -0.0]  # e4m3: scale 7, and 25 lies between 24 and 26; 175 * (1/7) does not
    x[(n - 1) * d], x[n * d - 1] = math.nan, 0.0
    if n > 2:
        x[d:2 * d] = [0.0] * d
    if d > BLOCK:
        last = (n - 1) * d
        x[last + BLOCK:last + d] = [f32(1e-40 * rng.randint(-9, 9)) for _ in range(d - BLOCK)]
    return x


def write(arrays):
    """arrays: {name: (type, shape, elements)}"""
    head, blobs, offset = ["golden 1", "made by make_quant_golden.py"], [], 0
    for name, (kind, shape, elements) in arrays.items():
        blob = struct.pack("<%d%s" % (len(elements), {"f32": "f", "i32": "i"}[kind]), *elements)
        blob += b"\0" * (-len(blob) % 8)
        head.append(f"array {name} {kind} {offset} " + " ".join(map(str, shape)))
        blobs.append(blob)
        offset += len(blob)
    golden_file.pack(OUT, ("\n".join(head) + "\ndata\n").encode() + b"".join(blobs))


def main():
    rng, arrays = random.Random(1), {}
    for shape in SHAPES:
        name = "%dx%d" % shape
        x = draw(*shape, rng)
        arrays[f"{name}/x"] = ("f32", shape, x)
        for kind in KINDS:
            for type_name, layout in TYPES.items():
                data, scale, scale_shape = quantize(x, shape, kind, layout)
                arrays[f"{name}.{kind}.{type_name}/data"] = ("i32", shape, data)
                arrays[f"{name}.{kind}.{type_name}/scale"] = ("f32", scale_shape, scale)
    write(arrays)


if __name__ == "__main__":
    main()
