// What a step asks of the kernels, said once and done again and again without an interpreter in between.
//
// A call is recorded with its operands checked and resolved; what is done later is the same call over the same memory,
// so the bits are those of the calls one by one. Only the spans differ from run to run.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "workers.h"

namespace sapwood {

template <class Spans>
class Program {
 public:
  using Call = std::function<void(Workers&, const Spans&)>;

  void add(Call call) { calls_.push_back(std::move(call)); }
  size_t size() const { return calls_.size(); }

  void run(Workers& workers, const Spans& spans) const {
    for (const Call& call : calls_) call(workers, spans);
  }

 private:
  std::vector<Call> calls_;
};

}  // namespace sapwood
