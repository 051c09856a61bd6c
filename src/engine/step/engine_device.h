/* engine_device: which settings the device of a run can have. What only the device at hand decides, such
 * as its memory, is found out later. */
#ifndef ENGINE_STEP_ENGINE_DEVICE_H
#define ENGINE_STEP_ENGINE_DEVICE_H

#include "engine/config/config.h"

/* ERR_ARG: a kernel of GPUs without a GPU. ERR_UNSUPPORTED: run.compute=f16 on a GPU. ERR_DEVICE: this
 * build is for another vendor's GPUs than run.device, attention.kernel or moe.exchange ask for. */
Status engine_check_device(const Config *c);

#endif
