/* vendor: names of GPU vendors and of the libraries that ops call, for an Exec and for tables of
 * kernels. libraries.h opens the libraries. */
#ifndef KERNELS_CORE_VENDOR_H
#define KERNELS_CORE_VENDOR_H

/* A build is for one vendor's GPUs. VENDOR_ANY: of a kernel, any vendor; of a build, no GPU. */
typedef enum GpuVendor { VENDOR_ANY, VENDOR_NVIDIA, VENDOR_AMD } GpuVendor;

typedef enum LibraryId { LIBRARY_PRODUCTS, LIBRARY_COUNT } LibraryId;

#endif
