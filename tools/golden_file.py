"""A golden file on disk: compressed by the program zstd, so that its path ends in .zst.

The same bytes give the same file: the level is fixed, one thread works, no name and no time is kept. Other
versions of zstd may give other files with the same content. `zstdcat FILE` shows a file, tests/harness/packed.h
reads it.
"""
import subprocess


def pack(path, data):
    # the size stands in the head, so that a reader allocates once
    packed = subprocess.run(["zstd", "-q", "-19", "--single-thread", f"--stream-size={len(data)}", "-c"],
                            input=data, stdout=subprocess.PIPE, check=True).stdout
    with open(path, "wb") as f:
        f.write(packed)


def unpack(path):
    return subprocess.run(["zstd", "-dqc", path], stdout=subprocess.PIPE, check=True).stdout
