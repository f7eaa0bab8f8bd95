// How this thread rounds and what it makes of subnormals: as the exactness contract has it while this lives, then again
// as before. A library built with -ffast-math has subnormals flushed to zero in whatever thread loads it, and a thread
// starts as the one that made it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sapwood {

class FloatState {
 public:
  FloatState() : before_(get()) {
    if ((before_ & kControl) != (kExact & kControl)) set(kExact);
  }
  ~FloatState() {
    if ((before_ & kControl) != (kExact & kControl)) set(before_);
  }
  FloatState(const FloatState&) = delete;
  FloatState& operator=(const FloatState&) = delete;

 private:
  // To nearest even, subnormals kept, no traps; the flags of what has happened do not count.
#if defined(__x86_64__)
  using Word = unsigned;
  static constexpr Word kExact = 0x1f80, kControl = 0xffc0;
  static Word get() { return _mm_getcsr(); }
  static void set(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kExact = 0, kControl = ~Word{0};
  static Word get() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void set(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
  using Word = unsigned;
  static constexpr Word kExact = 0, kControl = 0;
  static Word get() { return 0; }
  static void set(Word) {}
#endif

  Word before_;
};

}  // namespace sapwood
