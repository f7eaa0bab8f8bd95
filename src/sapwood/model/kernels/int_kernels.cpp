#include "int_kernels.h"

#define SAPWOOD_VARIANT int_base
#include "int_kernels_impl.h"

namespace sapwood {

#ifdef SAPWOOD_AVX2
const IntKernels kBaseKernels = {"avx2", int_base::direct, int_base::direct8, int_base::expand, int_base::tiled};
#else
const IntKernels kBaseKernels = {"generic", int_base::direct, int_base::direct8, int_base::expand, int_base::tiled};
#endif

namespace {

std::vector<const IntKernels*> found() {
  std::vector<const IntKernels*> all;
#ifdef SAPWOOD_AVX512VNNI
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl")) all.push_back(&kAvx512VnniKernels);
#endif
#ifdef SAPWOOD_AVXVNNI
  if (__builtin_cpu_supports("avxvnni")) all.push_back(&kAvxVnniKernels);
#endif
  all.push_back(&kBaseKernels);
  return all;
}

}  // namespace

const std::vector<const IntKernels*>& int_kernels() {
  static const std::vector<const IntKernels*> all = found();
  return all;
}

}  // namespace sapwood
