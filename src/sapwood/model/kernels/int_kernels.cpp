#include "int_kernels.h"

#define SAPWOOD_VARIANT int_base
#include "int_kernels_impl.h"

namespace sapwood {

#ifdef SAPWOOD_X86
const IntKernels kBaseKernels = {"avx2", int_base::direct, int_base::expand, int_base::tiled};
#else
const IntKernels kBaseKernels = {"generic", int_base::direct, int_base::expand, int_base::tiled};
#endif

namespace {

const IntKernels& best() {
#ifdef SAPWOOD_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) return kAvx512VnniKernels;
  if (__builtin_cpu_supports("avxvnni")) return kAvxVnniKernels;
#endif
  return kBaseKernels;
}

}  // namespace

const IntKernels& int_kernels() {
  static const IntKernels& chosen = best();
  return chosen;
}

}  // namespace sapwood
