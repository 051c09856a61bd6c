#!/usr/bin/env python3
"""`switchyard serve` under many requests: no answer is lost or another one's, and memory stays.

    soak_server.py PROGRAM RUN [--requests N] [--at-once N]

RUN is the folder of a run. Requests of six kinds, some of them wrong, are sent one after the other, then as many again
by clients at once. Each answer must be the first one to that request, whatever else is computed with it. Between a
tenth of the requests and the end the server may not grow by more than 4 MiB.

Prints requests, seconds, tokens a second and memory, and ends with `N passed, M failed, 0 skipped`; exit code 1 if any
request failed.
"""
import argparse
import http.client
import json
import subprocess
import sys
import threading
import time

GROWTH_KIB = 4096
KINDS = [
    {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0},
    {"prompt": [[1, 2], [3, 4, 5, 6, 7, 8, 9, 10]], "max_tokens": 4, "temperature": 1, "seed": 3},
    {"prompt": "static Status", "max_tokens": 1, "echo": True, "logprobs": 2, "temperature": 0},
    {"prompt": ["return", "if (", "for"], "max_tokens": 0, "echo": True, "logprobs": 1},
    {"prompt": "x", "n": 7},
    {"prompt": [1] * 5000},
]


def ask(connection, kind):
    """Status and choices of an answer; numbers lose the digits that depend on the other parts of a call."""
    connection.request("POST", "/v1/completions", json.dumps(KINDS[kind]))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    text = json.dumps(body.get("choices", body), sort_keys=True)
    return answer.status, json.loads(text, parse_float=lambda x: round(float(x), 3)), body.get("usage", {})


def memory_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


class Client:
    def __init__(self, port, want):
        self.port, self.want, self.failed, self.tokens = port, want, 0, 0

    def run(self, numbers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        for number in numbers:
            kind = number % len(KINDS)
            status, choices, usage = ask(connection, kind)
            self.failed += (status, choices) != self.want[kind]
            self.tokens += usage.get("total_tokens", 0)
        connection.close()


def soak(port, process, requests, at_once):
    first = http.client.HTTPConnection("127.0.0.1", port)
    want = [ask(first, kind)[:2] for kind in range(len(KINDS))]
    if [status for status, _ in want] != [200, 200, 200, 200, 400, 400]:
        raise SystemExit(f"first answers: {want}")
    begun, failed, tokens = time.time(), 0, 0
    alone = Client(port, want)
    alone.run(range(requests // 10))
    before = memory_kib(process)
    alone.run(range(requests - requests // 10))
    clients = [Client(port, want) for _ in range(at_once)]
    threads = [threading.Thread(target=c.run, args=(range(i, requests, at_once),)) for i, c in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in [alone] + clients:
        failed += client.failed
        tokens += client.tokens
    after, seconds = memory_kib(process), time.time() - begun
    print(f"{2 * requests} requests in {seconds:.1f} s, {tokens / seconds:.0f} tokens/s, "
          f"{before} KiB before, {after} KiB after")
    if after > before + GROWTH_KIB:
        print(f"the server has grown by {after - before} KiB")
        failed += 1
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("run")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=32)
    arguments = parser.parse_args()
    server = subprocess.Popen([arguments.program, "serve", arguments.run, "--port", "0"], stderr=subprocess.PIPE,
                              text=True)
    line = next(line for line in server.stderr if "http://" in line)
    try:
        failed = soak(int(line.split(":")[-1].split("/")[0]), server, arguments.requests, arguments.at_once)
    finally:
        server.terminate()
    failed += server.wait() != 0
    print(f"{2 * arguments.requests - min(failed, 2 * arguments.requests)} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
