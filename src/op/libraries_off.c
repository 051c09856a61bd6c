/* libraries: of a build without a GPU: none. */
#include "op/libraries.h"

const OpLibrary op_library[LIBRARY_COUNT] = { 0 };
