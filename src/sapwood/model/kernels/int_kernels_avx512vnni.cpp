#include "int_kernels.h"

#define SAPWOOD_VARIANT int_avx512vnni
#include "int_kernels_impl.h"

namespace sapwood {

const IntKernels kAvx512VnniKernels = {"avx512-vnni", int_avx512vnni::direct, int_avx512vnni::direct8,
                                       int_avx512vnni::expand, int_avx512vnni::tiled};

}  // namespace sapwood
