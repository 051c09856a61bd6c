/*
 * attention_vendor: what attention.cu takes of this build's GPU vendor: the product of two tiles on
 * matrix units (FRAGMENT, STRIP, fragment_product). A second vendor's folder is chosen here.
 */
#ifndef OP_ATTENTION_VENDOR_CUH
#define OP_ATTENTION_VENDOR_CUH

#include "op/nv/fragment.cuh"

#endif
