// A small thread pool that hands out pieces from an atomic counter.
//
// A static split makes everyone wait for the thread that lost its core; small pieces do not, and a helper that was not
// scheduled in time is not waited for at all. Which thread takes which piece never changes a bit: a piece writes its
// own outputs and no piece reduces into another's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "float_state.h"

namespace sapwood {

class Workers {
 public:
  // Throws std::system_error where the system cannot give that many threads.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(others_.size()) + 1; }

  // Held by callers that share workers for a whole op, from its first use of scratch to its last run; floats are
  // meanwhile what the exactness contract takes them for.
  class Turn {
   public:
    explicit Turn(std::mutex& turn) : lock_(turn) {}

   private:
    std::unique_lock<std::mutex> lock_;
    FloatState floats_;
  };
  Turn turn() { return Turn(turn_); }

  // Calls piece(i, thread) once for each i in [0, count); returns when all are done.
  // If pieces throw, the rest still runs and then the first exception is thrown here.
  void run(int count, const std::function<void(int, int)>& piece);

  // Scratch floats owned by one thread, kept between calls, 64-byte aligned.
  float* scratch(int thread, size_t floats);

  // Scratch floats that all pieces of the next run may read; owned by the caller of run().
  float* common(size_t floats);

  // What all scratch takes by now; may be asked for in the middle of an op.
  size_t scratch_bytes() const { return scratch_floats_.load() * sizeof(float); }

 private:
  void serve(int thread);
  void join_round(unsigned round, int thread);
  void take(int thread);
  void wait_for_helpers() const;
  void end_helpers();

  std::vector<std::thread> others_;
  std::vector<std::vector<float>> scratch_;  // one a thread, then the common one
  std::atomic<size_t> scratch_floats_{0};    // of all of them
  std::mutex turn_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> round_{0};    // the newest round
  std::atomic<unsigned> open_{0};     // the round that may be joined; 0: none
  std::atomic<int> inside_{0};        // helpers in the open round, or just finding out that it has closed
  std::atomic<int> next_{0};
  std::atomic<bool> stop_{false};
  int count_ = 0;
  const std::function<void(int, int)>* piece_ = nullptr;
  std::exception_ptr failure_;  // the first of this round, under mutex_
};

}  // namespace sapwood
