/* engine: the door of the engine: what other houses may include of it. README.md says what lies where. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

/* backend: where ops run: CPU, GPU, or a counter of memory and work */
#include "engine/backend/backend.h"

/* base: status, arenas, tensors, random numbers, files, text, JSON, log */
#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/dtype.h"
#include "engine/base/file.h"
#include "engine/base/file_changed.h"
#include "engine/base/interrupt.h"
#include "engine/base/json.h"
#include "engine/base/lane.h"
#include "engine/base/log.h"
#include "engine/base/order.h"
#include "engine/base/out.h"
#include "engine/base/out_folder.h"
#include "engine/base/rng.h"
#include "engine/base/scan.h"
#include "engine/base/status.h"
#include "engine/base/synonym.h"
#include "engine/base/tensor.h"
#include "engine/base/text.h"

/* checkpoint: saving and loading, on disk and in the memory of hosts */
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/init.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/numbers.h"

/* comm: ranks as threads, MPI processes or GPUs; the mesh and its groups */
#include "engine/comm/bind.h"
#include "engine/comm/comm.h"
#include "engine/comm/mesh.h"
#include "engine/comm/mpi_version.h"

/* config: settings (`rows.def`), presets, checks */
#include "engine/config/config.h"
#include "engine/config/config_doc.h"
#include "engine/config/gpu_hour.h"
#include "engine/config/ramp.h"

/* count: what an engine takes, counted without running it */
#include "engine/count/capacity.h"
#include "engine/count/chunk_count.h"
#include "engine/count/chunks.h"
#include "engine/count/engine_count.h"
#include "engine/count/layer_count.h"

/* gpu: one set of names for the runtimes of GPU vendors; clocks, power, health */
#include "engine/gpu/gpu.h"
#include "engine/gpu/gpu_health.h"
#include "engine/gpu/gpu_memory.h"
#include "engine/gpu/gpu_state.h"

/* host: this machine: cores, memory limits, processes, threads, libraries opened at run time */
#include "engine/host/cgroup.h"
#include "engine/host/cpu.h"
#include "engine/host/host_memory.h"
#include "engine/host/http.h"
#include "engine/host/library.h"
#include "engine/host/process.h"
#include "engine/host/progress.h"
#include "engine/host/worker.h"

/* model: layers, parameters, optimizers */
#include "engine/model/figure.h"
#include "engine/model/matrix.h"
#include "engine/model/params.h"
#include "engine/model/recipe_text.h"
#include "engine/model/spec.h"

/* schedule: pipeline schedules, lists of actions, proof and simulation */
#include "engine/schedule/estimate.h"
#include "engine/schedule/layout.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/simulate.h"

/* step: the engine: runs a list, reduces gradients, updates weights */
#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"

/* trace: the file format of a recorded step */
#include "engine/trace/record.h"

/* train: the run around the steps: metrics, evaluation, what watches a run */
#include "engine/train/eval.h"
#include "engine/train/eval_choices.h"
#include "engine/train/fits.h"
#include "engine/train/heartbeat.h"
#include "engine/train/infer.h"
#include "engine/train/live.h"
#include "engine/train/peak.h"
#include "engine/train/questions.h"
#include "engine/train/ranks.h"
#include "engine/train/recorder.h"
#include "engine/train/train.h"

#endif
