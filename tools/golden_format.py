"""Golden files: named arrays that a C test reads with a few lines (tests/golden/golden.h). On disk they are
compressed (golden_file.py).

    golden 1
    made by make_golden.py, torch 2.15.0, transformers 5.23.0
    array NAME f32|i32 OFFSET DIM...
    ...                                     one line an array; OFFSET counts bytes after "data\\n"
    data
    <little-endian elements, each array at a multiple of 8 bytes>

The head is text, so `zstdcat FILE | head -c 2000` shows what a file holds. Names have no spaces; a DIM list is
never empty: a scalar has shape (1). Arrays with the same bytes share them. A NaN in an f32 array
means "the op leaves this element alone".
"""
import numpy as np

import golden_file

MAGIC = "golden 1"
TYPES = {"f32": np.dtype("<f4"), "i32": np.dtype("<i4")}


def write(path, made_by, arrays):
    """arrays: {name: float or integer numpy array}. Floats become f32, integers i32."""
    head, blobs, offset, at = [MAGIC, made_by], [], 0, {}
    for name, array in arrays.items():
        array = np.atleast_1d(np.asarray(array))
        kind = "f32" if array.dtype.kind == "f" else "i32"
        assert " " not in name and array.size > 0, name
        if kind == "i32":
            assert np.abs(array).max() < 2**31, name
        blob = np.ascontiguousarray(array.astype(TYPES[kind])).tobytes()
        blob += b"\0" * (-len(blob) % 8)
        if blob not in at:
            at[blob] = offset
            blobs.append(blob)
            offset += len(blob)
        head.append(f"array {name} {kind} {at[blob]} " + " ".join(map(str, array.shape)))
    golden_file.pack(path, ("\n".join(head) + "\ndata\n").encode() + b"".join(blobs))


def read(path):
    """{name: numpy array}"""
    head, data = golden_file.unpack(path).split(b"\ndata\n", 1)
    lines = head.decode().split("\n")
    if lines[0] != MAGIC:
        raise SystemExit(f"{path} is no golden file: it begins with {lines[0]!r}")
    arrays = {}
    for line in lines[2:]:
        _, name, kind, offset, *dims = line.split()
        shape = tuple(map(int, dims))
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(data, TYPES[kind], count, int(offset)).reshape(shape)
    return arrays
