#include "int_kernels.h"

#define SAPWOOD_VARIANT int_avxvnni
#include "int_kernels_impl.h"

namespace sapwood {

const IntKernels kAvxVnniKernels = {"avx-vnni", int_avxvnni::direct, int_avxvnni::direct8, int_avxvnni::expand,
                                    int_avxvnni::tiled};

}  // namespace sapwood
