/* libraries: the table of op/libraries.h for AMD. */
extern "C" {
#include "op/libraries.h"

extern const GpuVendor op_vendor = VENDOR_AMD;
extern const OpLibrary op_library[LIBRARY_COUNT] = {};
}
