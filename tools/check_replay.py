#!/usr/bin/env python3
"""Checks `switchyard trace replay` against an installed PyTorch.

    check_replay.py --schemas tools/replay/schemas.def     every row is a signature that PyTorch has
    check_replay.py FILE.json [--elements N] [--ops N]    runs operators whose tensors are that small

Exit 1: a row is wrong or an operator failed; 77: there is no PyTorch."""
import argparse
import json
import re
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

TYPES = {"double": torch.float64, "float": torch.float32, "c10::Half": torch.float16,
         "c10::BFloat16": torch.bfloat16, "long": torch.int64, "int": torch.int32, "bool": torch.bool,
         "unsigned char": torch.uint8, "char": torch.int8, "short": torch.int16}


def rows(path):
    text = re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)
    for call in re.findall(r'SCHEMA\(((?:\s*"[^"]*",?)+)\s*\)', text):
        parts = re.split(r",\s*(?=\")", call)
        texts = ["".join(re.findall(r'"([^"]*)"', p)) for p in parts]
        yield texts[0], texts[1].split()


def plain(args):
    """An argument list without sizes of lists, marks of what is written, and quotes."""
    args = re.sub(r"\([a-z]!?\)|\[\d+\]", lambda m: "[]" if m[0][0] == "[" else "", args)
    return args.replace('"', "")


def check_schemas(path):
    bad = 0
    for args, names in rows(path):
        for name in names:
            have = {plain(re.match(r"[^(]+\((.*)\) ->", str(s))[1])
                    for s in torch._C._jit_get_schemas_for_operator("aten::" + name)}
            # PyTorch may have added arguments that go by name
            if not any(h == args or h.startswith(args + ", ") for h in have):
                print(f"aten::{name}({args}) is none of {sorted(have)}")
                bad += 1
    return bad


def tensor(v):
    """Elements may share memory (stride 0), so the memory is filled and not the tensor."""
    n = 1 + sum((size - 1) * stride for size, stride in zip(v["shape"], v["strides"]))
    memory = torch.zeros(max(n, 1), dtype=TYPES[v["dtype"]])
    if v["init"] == "normal":
        memory.normal_()
    return memory.as_strided(v["shape"], v["strides"])


def value(a):
    return tensor(a["value"]) if isinstance(a["value"], dict) else a["value"]


def elements(op):
    ir = op["replay_ir"]
    n = 0
    for a in ir["list_pos_args"] + ir["list_kwargs"]:
        if isinstance(a["value"], dict):
            k = 1
            for size in a["value"]["shape"]:
                k *= size
            n = max(n, k)
    return n


def run(path, most, limit):
    done = skipped = bad = 0
    for op in json.load(open(path)):
        known = op["op_name"].startswith("aten::") and not re.search("cudnn|miopen|flash", op["op_name"])
        if done == limit or not known or elements(op) > most:
            skipped += 1
            continue
        try:
            func, _ = torch._C._jit_get_operation(op["op_name"])
            ir = op["replay_ir"]
            func(*[value(a) for a in ir["list_pos_args"]],
                 **{a["arg_name"]: value(a) for a in ir["list_kwargs"]})
            done += 1
        except Exception as e:
            text = str(e).splitlines()[0]
            if re.search("Could not run|not implemented for|expected scalar type|MIOpen", text):
                skipped += 1  # the arguments are right, but this machine has no kernel for them
                continue
            print(f"{op['op_name']}: {text}")
            bad += 1
    print(f"{done} operators ran, {bad} failed, {skipped} skipped")
    return bad + (done == 0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("file", nargs="?")
    p.add_argument("--schemas")
    p.add_argument("--elements", type=float, default=2e6)
    p.add_argument("--ops", type=int, default=-1)
    a = p.parse_args()
    bad = check_schemas(a.schemas) if a.schemas else 0
    bad += run(a.file, a.elements, a.ops) if a.file else 0
    sys.exit(bad > 0)


main()
