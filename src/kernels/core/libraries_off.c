/* libraries_off: the empty table of libraries, for builds without a GPU. */
#include "kernels/core/libraries.h"

const GpuVendor op_vendor = VENDOR_ANY;
const OpLibrary op_library[LIBRARY_COUNT] = { 0 };
