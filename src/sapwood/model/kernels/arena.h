// Memory for weights: large chunks on huge pages, given out in order and freed together.
//
// Weights are streamed once per step. On small pages the hardware's prefetch stops every 4 KiB and each page costs a
// walk of the page table: one core then reads half of what the memory could give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace sapwood {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // `bytes` of memory aligned to a cache line, and readable 4 KiB beyond its end. Throws std::bad_alloc.
  uint8_t* take(size_t bytes);

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<uint8_t, Free>> chunks_;
  uint8_t* at_ = nullptr;
  size_t left_ = 0;
};

}  // namespace sapwood
