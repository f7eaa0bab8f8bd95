#include "arena.h"

#include <algorithm>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace sapwood {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = 32 * kHugePage;
constexpr size_t kMargin = 4096;

size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

uint8_t* Arena::take(size_t bytes) {
  const size_t size = rounded(bytes, 64);
  if (size + kMargin > left_) {
    const size_t chunk = std::max(kChunk, rounded(size + kMargin, kHugePage));
    uint8_t* memory = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, chunk));
    if (!memory) throw std::bad_alloc();
    chunks_.emplace_back(memory);
#if defined(__linux__)
    madvise(memory, chunk, MADV_HUGEPAGE);  // a wish: without it the bits are the same
#endif
    at_ = memory;
    left_ = chunk;
  }
  uint8_t* given = at_;
  at_ += size;
  left_ -= size;
  return given;
}

}  // namespace sapwood
