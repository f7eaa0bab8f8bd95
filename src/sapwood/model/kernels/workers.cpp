#include "workers.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sapwood {

namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 100 µs: longer than the Python between two ops of a step, shorter than anybody would notice burning.
constexpr int kSpins = 4000;

}  // namespace

Workers::Workers(int threads) : scratch_(static_cast<size_t>(threads < 1 ? 1 : threads) + 1) {
  try {
    for (int t = 1; t < threads; ++t) others_.emplace_back([this, t] { serve(t); });
  } catch (...) {
    end_helpers();
    throw;
  }
}

Workers::~Workers() { end_helpers(); }

void Workers::end_helpers() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    round_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& t : others_) t.join();
}

void Workers::take(int thread) {
  for (int i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
    try {
      (*piece_)(i, thread);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

// Enters, then looks whether the round is still open: either this sees it closed, or the caller sees it inside.
void Workers::join_round(unsigned round, int thread) {
  inside_.fetch_add(1);
  if (open_.load() == round) take(thread);
  inside_.fetch_sub(1);
}

void Workers::serve(int thread) {
  const FloatState exact;
  unsigned seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && round_.load() == seen; ++spin) relax();
    if (round_.load() == seen) {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return round_.load() != seen; });
    }
    seen = round_.load();
    if (stop_) return;
    join_round(seen, thread);
  }
}

void Workers::wait_for_helpers() const {
  for (int spin = 0; inside_.load() != 0; ++spin) {
    if (spin < kSpins) relax();
    else std::this_thread::yield();
  }
}

void Workers::run(int count, const std::function<void(int, int)>& piece) {
  if (others_.empty() || count <= 1) {
    for (int i = 0; i < count; ++i) piece(i, 0);
    return;
  }
  piece_ = &piece;
  count_ = count;
  next_.store(0);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const unsigned round = round_.load() + 1 == 0 ? 1 : round_.load() + 1;
    open_.store(round);
    round_.store(round);
  }
  wake_.notify_all();
  take(0);
  open_.store(0);
  wait_for_helpers();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

float* Workers::scratch(int thread, size_t floats) {
  auto& s = scratch_[static_cast<size_t>(thread)];
  const size_t padded = floats + 16;
  if (const size_t before = s.size(); before < padded) {
    s.resize(padded);
    scratch_floats_.fetch_add(padded - before);
  }
  const auto at = reinterpret_cast<uintptr_t>(s.data());
  return reinterpret_cast<float*>((at + 63) & ~static_cast<uintptr_t>(63));
}

float* Workers::common(size_t floats) { return scratch(threads(), floats); }

}  // namespace sapwood
