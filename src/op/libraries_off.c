/* libraries: of a build without a GPU: none. */
#include "op/libraries.h"

const GpuVendor op_vendor = VENDOR_ANY;
const OpLibrary op_library[LIBRARY_COUNT] = { 0 };
