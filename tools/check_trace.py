#!/usr/bin/env python3
"""check_trace: `switchyard trace report --compat tracelens` beside TraceLens' own tables.

usage: tools/check_trace.py [--binary build/switchyard] [--traces ../shared/traces] [PATTERN]

Runs the program over every trace of MANIFEST.tsv for which there are reference tables and compares
each that we write: columns, rows and their order, texts, and numbers (in texts, too) to 1e-6
relative. Prints one line a table: ok, ok with ties in another order, absent, or the first
difference. Exit status 1 if any differs; reference tables that we do not write are listed.
"""
import argparse
import ast
import csv
import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile

csv.field_size_limit(1 << 30)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
TOLERANCE = 1e-6
COMPUTED = {"h100_qwen": "tracelens/h100/Qwen", "h100_owlv2": "tracelens/h100/google_owlv2",
            "norm_layer_test": "tracelens/perf_model/normalization/",
            "resnet_default_flags": "tracelens/mi300/resnet"}


def near(a, b):
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) + 1e-9


def same(a, b):
    """Equal cells: as numbers, or as texts whose numbers are near."""
    if a == b:
        return True
    try:
        return near(float(a), float(b)) or (math.isnan(float(a)) and math.isnan(float(b)))
    except ValueError:
        pass
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    return all(near(float(x), float(y)) for x, y in zip(NUMBER.findall(a), NUMBER.findall(b)))


def read(path):
    with open(path, newline="") as f:
        rows = list(csv.reader(f))
    return (rows[0], rows[1:]) if rows else ([], [])


def rough(cell):
    """A cell for sorting rows: texts as they are, numbers rounded."""
    try:
        return "%.5g" % float(cell)
    except ValueError:
        return NUMBER.sub("#", cell)


def first_difference(columns, ours, theirs):
    for i, (a, b) in enumerate(zip(ours, theirs)):
        for name, x, y in zip(columns, a, b):
            if not same(x, y):
                return "row %d (%s), %s: %s, wanted %s" % (i, b[0][:30], name, x[:60], y[:60])
    return None


def compare(ours_path, theirs_path):
    ours_columns, ours = read(ours_path)
    columns, theirs = read(theirs_path)
    if "computed" in theirs_path and set(columns) < set(ours_columns):  # has fewer columns
        at = [ours_columns.index(c) for c in columns]
        ours_columns, ours = columns, [[row[k] for k in at] for row in ours]
    if ours_columns != columns:
        if not columns and not ours:
            return "ok"
        return "columns %s, wanted %s" % ([c for c in ours_columns if c not in columns],
                                          [c for c in columns if c not in ours_columns])
    if len(ours) != len(theirs):
        have, want = {tuple(map(rough, r)) for r in ours}, {tuple(map(rough, r)) for r in theirs}
        return "%d rows, wanted %d; more: %s; fewer: %s" % (
            len(ours), len(theirs), [x[0][:60] for x in sorted(have - want)[:2]],
            [x[0][:60] for x in sorted(want - have)[:2]])
    difference = first_difference(columns, ours, theirs)
    if difference is None:
        return "ok"
    def order(row):
        return [rough(c) for n, c in zip(columns, row) if "Cumulative" not in n]
    again = first_difference(columns, sorted(ours, key=order), sorted(theirs, key=order))
    return "ok (ties in another order)" if again is None else difference


def references(root, path):
    """Folders with reference tables of a trace, and the flags that made them."""
    folder, stem = os.path.split(os.path.join(root, path))
    stem = stem.split(".json")[0]
    for d in sorted(glob.glob(os.path.join(folder, "*_csvs"))):
        name = os.path.basename(d)
        if name.startswith(stem + "_recompute"):
            yield d, ["--recompute"]
        elif name.startswith(stem) or name == "perf_csvs":
            yield d, ["--kernels", "--short-kernels", "10"]
    for name, prefix in COMPUTED.items():
        if path.startswith(prefix):
            yield os.path.join(root, "computed", name), []
    worker = re.match(r"param_dlrm_8rank/worker(\d)_", path)
    if worker:
        yield os.path.join(root, "computed", "dlrm_rank" + worker.group(1)), []


# rows of trace_counts that TraceLens' tree has, too
COUNTS = {"elements of the trace": "events", "device events": "gpu_events",
          "device events that are linked": "gpu_linked", "operators that launched work": "launchers",
          "operators below no other": "cpu_root_nodes"}


def compare_counts(ours_path, theirs_path):
    ours = {row[0]: int(row[1]) for row in read(ours_path)[1]}
    with open(theirs_path) as f:
        theirs = json.load(f)
    for what, key in COUNTS.items():
        if ours[what] != theirs[key]:
            return "%s: %d, wanted %s %d" % (what, ours[what], key, theirs[key])
    return "ok"


def timelines(root):
    """Timelines of computed/include_unlinked_and_micro_idle.txt: trace, flags, time of each row."""
    path = None
    with open(os.path.join(root, "computed", "include_unlinked_and_micro_idle.txt")) as f:
        for line in f:
            name, _, numbers = line.partition(" {")
            flags = ["--micro-idle", "10"] if "micro10" in name else ["--include-unlinked"]
            path = path if "micro10" in name else name.split()[0]
            yield "tracelens/" + path, flags, ast.literal_eval("{" + numbers)


def check_timeline(binary, root, path, flags, want):
    with tempfile.TemporaryDirectory() as temp:
        out = os.path.join(temp, "out")
        subprocess.run([binary, "trace", "report", os.path.join(root, path), "--compat",
                        "tracelens", "--out", out] + flags, capture_output=True, check=True)
        rows = read(os.path.join(out, "gpu_timeline.csv"))[1]
    for name, time, _ in rows:
        if abs(float(time) - want[name]) > 1e-6:  # six decimals are given
            return "%s: %s, wanted %s" % (name, time, want[name])
    return "ok"


def check(binary, root, path, reference, flags):
    """Lines (sheet, verdict)."""
    with tempfile.TemporaryDirectory() as temp:
        out = os.path.join(temp, "out")
        command = [binary, "trace", "report", os.path.join(root, path), "--compat", "tracelens",
                   "--out", out, "--format", "csv"] + flags
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            yield "all", "exit %d: %s" % (ran.returncode, ran.stderr.strip())
            return
        counts = os.path.join(reference, "tree_counts.json")
        if os.path.exists(counts):
            yield "tree_counts", compare_counts(os.path.join(out, "trace_counts.csv"), counts)
        for theirs in sorted(glob.glob(os.path.join(reference, "*.csv"))):
            ours = os.path.join(out, os.path.basename(theirs))
            sheet = os.path.basename(theirs)[:-4]
            if "vllm_decode_full" in reference and sheet != "gpu_timeline":
                yield sheet, "absent: it takes the trace of the graph's capture, which is not there"
            elif os.path.exists(ours):
                yield sheet, compare(ours, theirs)
            else:
                yield sheet, "absent" if os.path.getsize(theirs) > 1 else "ok"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binary", default="build/switchyard")
    parser.add_argument("--traces", default="../shared/traces")
    parser.add_argument("pattern", nargs="?", default="")
    a = parser.parse_args()
    counts = {"ok": 0, "different": 0, "absent": 0}
    with open(os.path.join(a.traces, "MANIFEST.tsv")) as f:
        paths = [row["path"] for row in csv.DictReader(f, delimiter="\t")]
    for path in paths:
        for reference, flags in references(a.traces, path):
            for sheet, verdict in check(a.binary, a.traces, path, reference, flags):
                where = os.path.relpath(reference, a.traces)
                if a.pattern not in where + "/" + sheet:
                    continue
                kind = re.split("[ :]", verdict)[0]
                counts[kind if kind in counts else "different"] += 1
                print("%-30s %-60.60s %s" % (sheet, where, verdict), flush=True)
    for path, flags, want in timelines(a.traces):
        verdict = check_timeline(a.binary, a.traces, path, flags, want)
        counts["ok" if verdict == "ok" else "different"] += 1
        print("%-30s %-60.60s %s" % ("gpu_timeline " + flags[0], path, verdict))
    print("%(ok)d equal, %(different)d different, %(absent)d not written" % counts)
    return counts["different"] > 0


if __name__ == "__main__":
    sys.exit(main())
