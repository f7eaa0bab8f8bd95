#include "int_kernels.h"

#define SAPWOOD_VARIANT int_base
#include "int_kernels_impl.h"

namespace sapwood {

const IntKernels& int_kernels() {
  static constexpr IntKernels base = {"avx2", int_base::direct, int_base::expand, int_base::tiled};
  return base;
}

}  // namespace sapwood
