#!/usr/bin/env python3
"""Switchyard from Python: configurations, plans, trainings step by step, figures of runs, weights, tokens and traces.

    import switchyard as sy
    config = sy.Config("quickstart", "train.steps=100", "run.dir=runs/mine")
    print(config.plan("h100:64").tokens_per_s)
    with config.train() as trainer:
        for step in trainer:
            print(step.step, step.loss)
        print(trainer.weights["lm_head.weight"].shape)

One file over libswitchyard.so (include/switchyard.h). Without numpy, arrays are flat ones of ctypes. It looks for the library in
$SWITCHYARD_LIBRARY, in build/lib of the tree that it lies in, and where the system looks. Errors are switchyard.Error, with the program's
sentence. `python3 switchyard.py RUN` prints the loss of each step of a run.
"""
import collections.abc
import ctypes as c
import json
import math
import os
import sys

try:
    import numpy as np
except ImportError:
    np = None

VERSION = 1


class Error(Exception):
    """What the program would have printed. `code`: the exit code that it would have had."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def _struct(name, *fields):
    """A struct of the header whose repr shows its fields."""
    shown = [field for field, kind in fields if kind is not c.c_char_p]
    text = lambda self: f"{name}({', '.join(f'{f}={getattr(self, f)}' for f in shown)})"
    return type(name, (c.Structure,), {"_fields_": list(fields), "__repr__": text})


Step = _struct("Step", ("step", c.c_int64), ("tokens", c.c_int64), ("loss", c.c_double), ("grad_norm", c.c_double),
               ("lr", c.c_double), ("seconds", c.c_double), ("skipped", c.c_int32), ("last", c.c_int32))
Plan = _struct("Plan", ("gpus", c.c_int64), ("fits", c.c_int32), ("step_s", c.c_double), ("tokens_per_s", c.c_double),
               ("tokens_per_s_per_gpu", c.c_double), ("mfu", c.c_double), ("peak_bytes", c.c_double),
               ("room_bytes", c.c_double), ("json", c.c_char_p))
_TrainOptions = _struct("TrainOptions", ("ranks", c.c_int32), ("resume", c.c_int32), ("init", c.c_char_p))
_Weight = _struct("Weight", ("name", c.c_char_p), ("elems", c.c_int64), ("dims", c.c_int32), ("dim", c.c_int64 * 4))
_Counts = _struct("Counts", ("documents", c.c_int64), ("tokens", c.c_int64), ("id_bytes", c.c_int32))
_Sheet = _struct("Sheet", ("name", c.c_char_p), ("column", c.POINTER(c.c_char_p)), ("rows", c.c_int64),
                 ("columns", c.c_int32))
_Cell = _struct("Cell", ("type", c.c_int32), ("truth", c.c_int32), ("whole", c.c_int64), ("number", c.c_double),
                ("text", c.c_char_p))


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("SWITCHYARD_LIBRARY")
    built = os.path.join(here, "..", "build", "lib", "libswitchyard.so")
    path = named or (built if os.path.exists(built) else f"libswitchyard.so.{VERSION}")
    try:
        library = c.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}: build it with `make lib`, or set SWITCHYARD_LIBRARY to its file") from None
    library.switchyard_error.restype = c.c_char_p
    if library.switchyard_version() != VERSION:
        raise ImportError(f"{path} has version {library.switchyard_version()} of the interface, this file {VERSION}")
    return library


_library = _load()


def _call(name, *arguments):
    code = getattr(_library, "switchyard_" + name)(*arguments)
    if code != 0:
        raise Error(code, _library.switchyard_error().decode())


def _bytes(path):
    return os.fsencode(path)


def log(level):
    """What goes to stderr: -1 nothing, as at first; 0 errors, 1 warnings, 2 progress, 3 more."""
    _call("log", c.c_int32(level))


class _Handle:
    """What the library opened. Closed by close(), by the end of a `with`, or with the object."""

    _kind = ""

    def __init__(self, *arguments):
        self._at = c.c_void_p()
        _call(self._kind + "_open", *arguments, c.byref(self._at))

    def close(self):
        at, self._at = getattr(self, "_at", None), None
        if at:
            getattr(_library, f"switchyard_{self._kind}_close")(at)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


class Config(_Handle):
    """A YAML file or a preset's name, and settings as "section.key=value"."""

    _kind = "config"

    def __init__(self, source, *settings):
        texts = (c.c_char_p * len(settings))(*[s.encode() for s in settings])
        super().__init__(_bytes(source), texts, c.c_int32(len(settings)))

    def __str__(self):
        """All settings as YAML."""
        text = c.c_char_p()
        _call("config_text", self._at, c.byref(text))
        return text.value.decode()

    def plan(self, cluster, search=False):
        """What a cluster NAME:GPUS would need: a Plan, whose `details` are those of `switchyard plan --json`."""
        at = c.POINTER(Plan)()
        _call("plan_open", self._at, cluster.encode(), c.c_int32(search), c.byref(at))
        plan = Plan.from_buffer_copy(at.contents)
        plan.details = json.loads(at.contents.json)
        plan.json = None
        _library.switchyard_plan_close(at)
        return plan

    def train(self, ranks=1, resume=False, init=None):
        """A Trainer. resume: True, or "auto", which begins anew where there is no checkpoint."""
        return Trainer(self, ranks, 2 if resume == "auto" else int(resume), init)


class Trainer(_Handle):
    """A training in this process: step(), or a loop over its steps; `weights` as they are now."""

    _kind = "train"

    def __init__(self, config, ranks, resume, init):
        self._config = config  # which must stay open
        options = _TrainOptions(ranks, resume, None if init is None else _bytes(init))
        super().__init__(config._at, c.byref(options))
        at = c.c_void_p()
        _call("train_weights", self._at, c.byref(at))
        self.weights = Weights(self, at)

    def step(self):
        """Runs the next step, and the evaluation and the checkpoint behind it if they are due."""
        step = Step()
        _call("train_step", self._at, c.byref(step))
        return step

    def __iter__(self):
        while True:
            step = self.step()
            yield step
            if step.last:
                return

    def close(self):
        """Ends the training: saves a checkpoint."""
        at, self._at = getattr(self, "_at", None), None
        if at:
            self.weights = None
            _call("train_close", at)


class Weights(collections.abc.Mapping):
    """Weights by name, as float32 arrays that are copies. Weights.open: those of a checkpoint or of a run's newest."""

    def __init__(self, owner, at):
        self._owner, self._at, n, self._weight = owner, at, c.c_int64(), {}
        _call("weights_count", at, c.byref(n))
        for i in range(n.value):
            weight = _Weight()
            _call("weights_at", at, c.c_int64(i), c.byref(weight))
            self._weight[weight.name.decode()] = i, tuple(weight.dim[: weight.dims])

    @classmethod
    def open(cls, checkpoint):
        owner = _Checkpoint(_bytes(checkpoint))
        return cls(owner, owner._at)

    def shape(self, name):
        return self._weight[name][1]

    def __getitem__(self, name):
        i, shape = self._weight[name]
        if self._owner._at is None:
            raise Error(2, f"{name}: the training has ended")
        out = (c.c_float * math.prod(shape))()
        _call("weights_read", self._at, c.c_int64(i), out, c.c_int64(len(out)))
        return np.frombuffer(out, np.float32).reshape(shape) if np else out

    def __iter__(self):
        return iter(self._weight)

    def __len__(self):
        return len(self._weight)


class _Checkpoint(_Handle):
    _kind = "weights"


class Metrics(_Handle):
    """The lines of RUN/metrics.jsonl as dicts, while they are written or later."""

    _kind = "metrics"

    def __init__(self, run):
        super().__init__(_bytes(run))

    def next(self, wait=0.0):
        """The next line; None: none came within `wait` seconds."""
        line = c.c_char_p()
        _call("metrics_next", self._at, c.c_double(wait), c.byref(line))
        return None if line.value is None else json.loads(line.value)

    def __iter__(self):
        """All lines until now."""
        return iter(self.next, None)

    def curve(self, name, kind="step"):
        """(steps, values) of a number in all lines until now, as arrays. Of a step that was written again the last line
        counts."""
        at = {line["step"]: line[name] for line in self if line["kind"] == kind and line.get(name) is not None}
        steps = sorted(at)
        values = [at[step] for step in steps]
        return (np.array(steps), np.array(values, float)) if np else (steps, values)


class Tokens(_Handle, collections.abc.Sequence):
    """The documents of PREFIX.bin and PREFIX.idx: arrays of ids over the mapped file, which are not copied. They are of
    use only while this object is."""

    _kind = "tokens"

    def __init__(self, prefix):
        super().__init__(_bytes(prefix))
        self._counts = _Counts()
        _call("tokens_counts", self._at, c.byref(self._counts))
        self.tokens = self._counts.tokens

    def __len__(self):
        return self._counts.documents

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError(i)
        ids, n = c.c_void_p(), c.c_int64()
        _call("tokens_document", self._at, c.c_int64(i), c.byref(ids), c.byref(n))
        kind = {2: c.c_uint16, 4: c.c_int32}[self._counts.id_bytes]
        view = (kind * n.value).from_address(ids.value) if n.value else (kind * 0)()
        view.owner = self
        return np.frombuffer(view, kind) if np and n.value else view


class Trace(_Handle):
    """The tables of `switchyard trace report` of a trace, each a list of dicts."""

    _kind = "trace"

    def __init__(self, path):
        super().__init__(_bytes(path), None)

    @property
    def sheets(self):
        n, sheet = c.c_int32(), _Sheet()
        _call("trace_sheets", self._at, c.byref(n))
        return [(_call("trace_sheet", self._at, c.c_int32(i), c.byref(sheet)), sheet.name.decode())[1]
                for i in range(n.value)]

    def __getitem__(self, name):
        at, sheet, cell = c.c_int32(), _Sheet(), _Cell()
        _call("trace_find_sheet", self._at, name.encode(), c.byref(at))
        _call("trace_sheet", self._at, at, c.byref(sheet))
        columns = [sheet.column[i].decode() for i in range(sheet.columns)]

        def value(row, i):
            _call("trace_cell", self._at, at, c.c_int64(row), c.c_int32(i), c.byref(cell))
            return (None, (cell.text or b"").decode(), cell.number, cell.whole, bool(cell.truth))[cell.type]

        return [{column: value(row, i) for i, column in enumerate(columns)} for row in range(sheet.rows)]


if __name__ == "__main__":
    with Metrics(sys.argv[1]) as run:
        print(*("{} {:.4f}".format(*point) for point in zip(*run.curve("loss"))), sep="\n")
