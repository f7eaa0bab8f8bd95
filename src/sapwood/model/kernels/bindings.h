// What the bindings share: arrays as Python hands them over, and checks of their shapes. Shapes are checked here once;
// the kernels below trust them. Every call that computes releases the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace sapwood::bindings {

namespace nb = nanobind;
using namespace nb::literals;

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using ConstVector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline void require(bool ok, const char* what) {
  if (!ok) throw std::invalid_argument(what);
}

template <class M>
int rows(const M& m) { return static_cast<int>(m.shape(0)); }
template <class M>
int cols(const M& m) { return static_cast<int>(m.shape(1)); }

template <class M>
ptrdiff_t stride(const M& m) {
  require(m.shape(1) == 1 || m.stride(1) == 1, "rows must be contiguous");
  return static_cast<ptrdiff_t>(m.stride(0));
}

void bind_weights(nb::module_& m);
void bind_step(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_draws(nb::module_& m);

}  // namespace sapwood::bindings
