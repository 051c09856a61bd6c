"""What TorchTitan 0.3.0 misses where PyTorch is 2.11, which it was written after, and on a machine without a GPU.

None of it is on the path that is measured but for two things, both on 2.11 with more than one GPU: head and last norm are
FSDP groups of their own, and meshes are described by partial DTensors, as fully_shard has no dp_mesh_dims there.
"""
import ctypes
import dataclasses
import importlib
import inspect
import signal
import sys
import types

SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux' prctl
# Of data sets, pictures and logs: TorchTitan imports them and a step does not call them.
UNUSED_PACKAGES = """datasets datasets.distributed tokenizers tokenizers.decoders einops PIL PIL.Image
    torch.utils.tensorboard""".split()


class AnyModule(types.ModuleType):
    """Has a class for any name."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *arguments, **options: None})


def stand_in_for_absent_packages():
    for name in UNUSED_PACKAGES:
        try:
            importlib.import_module(name)
        except Exception:  # a package that is there and broken is as good as absent
            sys.modules[name] = AnyModule(name)
            sys.modules[name].__path__ = []


def end_with_parent():
    """torchrun gives each rank a session of its own. A rank ends if torchrun is killed, and gives its GPU back."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def takes_dp_mesh_dims():
    from torch.distributed.fsdp import fully_shard
    return "dp_mesh_dims" in inspect.signature(fully_shard).parameters


def spmd_backend(ranks):
    return "spmd_types" if ranks == 1 or takes_dp_mesh_dims() else "partial_dtensor"


def prepare_torch(on_cpu):
    """Before TorchTitan is imported."""
    import torch
    import torch.distributed as distributed
    import torch.distributed.fsdp as fsdp
    if not hasattr(fsdp, "DataParallelMeshDims"):
        fields = [("shard", object, None), ("replicate", object, None)]
        fsdp.DataParallelMeshDims = dataclasses.make_dataclass("DataParallelMeshDims", fields)
    if not hasattr(distributed, "set_timeout"):
        from torch.distributed import distributed_c10d
        distributed.set_timeout = lambda timeout, group=None: distributed_c10d._set_pg_timeout(timeout, group)
    if not hasattr(torch.compiler, "_is_non_strict_tracing"):
        torch.compiler._is_non_strict_tracing = lambda: False
    if on_cpu:
        pretend_processor_is_device(torch)


def prepare_torchtitan(on_cpu):
    """After TorchTitan is imported, before a model is built."""
    import torchtitan.distributed.fsdp as fsdp
    if on_cpu:
        give_swiglu_to_processor()
        sum_without_factor(fsdp)
    if not takes_dp_mesh_dims():
        shard_modules_one_by_one(fsdp)


def shard_modules_one_by_one(fsdp):
    """In 2.11 a group of two modules loses the first one's weight when the chunked loss reshards the second."""
    fully_shard = fsdp.fully_shard

    def one_by_one(module, dp_mesh_dims=None, **options):
        assert dp_mesh_dims is None
        for each in module if isinstance(module, list) else [module]:
            fully_shard(each, **options)
        return module
    fsdp.fully_shard = one_by_one


# ---- without a GPU ----

def pretend_processor_is_device(torch):
    import torch._utils
    names = {name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")}
    device = types.SimpleNamespace(**names)
    device.get_device_name = lambda *_: "cpu"
    device.memory_stats = lambda *_: {}
    device.reset_peak_memory_stats = device.empty_cache = device.set_device = lambda *_: None
    device.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 34, name="cpu")
    device.device_count, device.current_device = (lambda: 1), (lambda: 0)
    torch._utils._get_available_device_type = lambda: "cpu"
    torch._utils._get_device_module = lambda _kind: device


def give_swiglu_to_processor():
    import torch
    from torch.nn.functional import silu
    from torchtitan.overrides import fused_swiglu

    # y = silu(g) * u, so du = dy * silu(g) and dg = dy * u * s * (1 + g * (1 - s)) with s = sigmoid(g)
    def backward(dy, gate, up, _offsets=None):
        s, g = torch.sigmoid(gate.float()), gate.float()
        dgate = dy.float() * up.float() * s * (1 + g * (1 - s))
        return dgate.to(gate.dtype).contiguous(), (dy.float() * g * s).to(up.dtype).contiguous()
    fused_swiglu.silu_and_mul_op.register_kernel("cpu")(lambda gate, up, _offsets=None: (silu(gate) * up).contiguous())
    fused_swiglu.silu_and_mul_backward_op.register_kernel("cpu")(backward)


def sum_without_factor(fsdp):
    """Gloo has no sum with a factor."""
    def plain_sums(model):
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
    fsdp.disable_fsdp_gradient_division = plain_sums
