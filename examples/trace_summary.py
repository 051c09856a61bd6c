#!/usr/bin/env python3
"""A sheet of a trace, a dict a row, by ctypes: trace_summary.py FILE [SHEET [LIBRARY]]"""
import sys
from ctypes import CDLL, POINTER, Structure, byref, c_char_p, c_double, c_int32, c_int64, c_void_p


class Sheet(Structure):
    _fields_ = [("name", c_char_p), ("column", POINTER(c_char_p)), ("rows", c_int64), ("columns", c_int32)]


class Cell(Structure):
    _fields_ = [("type", c_int32), ("truth", c_int32), ("whole", c_int64), ("number", c_double), ("text", c_char_p)]

    def value(self):
        return (None, (self.text or b"").decode(), self.number, self.whole, bool(self.truth))[self.type]


def rows(library, path, name):
    lib, trace, at, sheet, cell = CDLL(library), c_void_p(), c_int32(), Sheet(), Cell()
    lib.switchyard_trace_error.restype = c_char_p

    def call(function, *args):
        if getattr(lib, "switchyard_trace_" + function)(*args) != 0:
            sys.exit(lib.switchyard_trace_error().decode())

    call("open", path.encode(), None, byref(trace))
    try:
        call("find_sheet", trace, name.encode(), byref(at))
        call("sheet", trace, at, byref(sheet))
        columns = [sheet.column[i].decode() for i in range(sheet.columns)]
        for row in range(sheet.rows):
            cells = [call("cell", trace, at, c_int64(row), i, byref(cell)) or cell.value() for i in range(len(columns))]
            yield dict(zip(columns, cells))
    finally:
        lib.switchyard_trace_close(trace)


if __name__ == "__main__":
    file, name, library = (sys.argv[1:] + ["gpu_timeline", "build/lib/libswitchyard.so"][len(sys.argv) - 2:])[:3]
    print(*rows(library, file, name), sep="\n")
