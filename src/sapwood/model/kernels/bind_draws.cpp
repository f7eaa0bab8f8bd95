// Draws from rows of logits.

#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.h"
#include "draw.h"
#include "philox.h"
#include "workers.h"

namespace sapwood::bindings {

namespace {

using OutInts = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutTable = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutBools = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutDoubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Draw draw(double temperature, int top_k, double top_p, double min_p, double number) {
  require(temperature >= 0 && top_k >= 0, "temperature and top_k must not be negative");
  require(top_p > 0 && min_p <= 1 && number >= 0 && number < 1, "top_p, min_p or number out of range");
  return {temperature, top_k, top_p, min_p, number};
}

// Rows of logits of one vocabulary, each an array of its own.
std::vector<const float*> logits_of(const std::vector<ConstVector>& rows) {
  std::vector<const float*> list;
  for (const ConstVector& row : rows) {
    require(row.shape(0) > 0 && row.shape(0) == rows[0].shape(0), "rows of logits of one width, not empty");
    list.push_back(row.data());
  }
  return list;
}

void pick_(Workers& workers, const std::vector<ConstVector>& rows, const std::vector<Draw>& draws, OutInts tokens,
           OutBools finite) {
  const std::vector<const float*> logits = logits_of(rows);
  require(draws.size() == rows.size() && tokens.shape(0) == rows.size() && finite.shape(0) == rows.size(),
          "pick: one draw, token and finiteness for each row");
  if (rows.empty()) return;
  const int width = static_cast<int>(rows[0].shape(0));
  nb::gil_scoped_release unlocked;
  const auto turn = workers.turn();
  workers.run(static_cast<int>(logits.size()), [&](int i, int) {
    const size_t at = static_cast<size_t>(i);
    const Picked picked = pick(logits[at], width, draws[at]);
    tokens.data()[i] = picked.token;
    finite.data()[i] = picked.finite;
  });
}

void rank_(Workers& workers, const std::vector<ConstVector>& rows, OutTable tokens, OutDoubles peaks,
           OutDoubles weights, OutBools finite) {
  const std::vector<const float*> logits = logits_of(rows);
  require(tokens.shape(0) == rows.size() && peaks.shape(0) == rows.size() && weights.shape(0) == rows.size() &&
              finite.shape(0) == rows.size(),
          "rank: one place for each row");
  if (rows.empty()) return;
  const size_t width = rows[0].shape(0), top = tokens.shape(1);
  require(top <= width, "rank: more tokens than there are");
  nb::gil_scoped_release unlocked;
  const auto turn = workers.turn();
  workers.run(static_cast<int>(logits.size()), [&](int i, int) {
    const size_t at = static_cast<size_t>(i);
    const Ranked ranked = rank(logits[at], static_cast<int>(width), static_cast<int>(top), tokens.data() + at * top);
    peaks.data()[i] = ranked.peak;
    weights.data()[i] = ranked.weight;
    finite.data()[i] = ranked.finite;
  });
}

}  // namespace

void bind_draws(nb::module_& m) {
  nb::class_<Draw>(m, "Draw").def("__init__", [](Draw* d, double temperature, int top_k, double top_p, double min_p,
                                                 double number) {
    new (d) Draw(draw(temperature, top_k, top_p, min_p, number));
  }, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "number"_a);
  m.def("uniform", &uniform, "seed"_a, "sample"_a, "position"_a);
  m.def("pick", &pick_, "workers"_a, "rows"_a.noconvert(), "draws"_a, "tokens"_a.noconvert(), "finite"_a.noconvert());
  m.def("rank", &rank_, "workers"_a, "rows"_a.noconvert(), "tokens"_a.noconvert(), "peaks"_a.noconvert(),
        "weights"_a.noconvert(), "finite"_a.noconvert());
}

}  // namespace sapwood::bindings
