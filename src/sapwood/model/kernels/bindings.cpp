// The extension: what Python sees of the kernels, by topic in the files named bind_*.

#include "bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "int_kernels.h"
#include "simd.h"

using namespace sapwood;
using namespace sapwood::bindings;

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a process may end while a thread still loads a model
  m.doc() = "The exact CPU kernels: every output element is one chain of fused multiply-adds in ascending k.";
#ifdef SAPWOOD_AVX2
  m.attr("variant") = "avx2";
#else
  m.attr("variant") = "generic";
#endif
  std::vector<std::string> variants;
  for (const IntKernels* k : int_kernels()) variants.push_back(k->name);
  m.attr("integer_variants") = nb::tuple(nb::cast(variants));
  bind_weights(m);
  bind_step(m);
  bind_ops(m);
  bind_draws(m);
}
