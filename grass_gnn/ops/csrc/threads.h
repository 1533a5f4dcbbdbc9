// Threads of one call: started for it, gone after it, so they never compete with torch's own pool.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace grass {

using Clock = std::chrono::steady_clock;

// Whether other processes take so much of the processors that threads are no gain. Work is split
// into shares, and a thread that loses its processor keeps all others waiting at the next barrier,
// perhaps for several milliseconds, a slice of the scheduler. Where all threads together get less
// done than one thread would, one does all shares for a while. What a share computes does not
// depend on which thread does it, so results stay the same.
class Crowding {
 public:
  static Crowding& of_process() {
    static Crowding crowding;
    return crowding;
  }

  // Whether one thread should do everything.
  bool alone(Clock::time_point now) {
    std::lock_guard<std::mutex> lock(mutex_);
    return withdraw_after == 0 || (withdraw_after < 0 && now < alone_until_);
  }

  // Takes in the seconds since the last phase and the processor time that work took in them, and
  // decides from the last twenty milliseconds. Returns whether threads should withdraw.
  bool add(Clock::time_point now, double passed, double worked, bool alone) {
    std::lock_guard<std::mutex> lock(mutex_);
    Window& window = alone ? alone_ : together_;
    window.passed += passed;
    window.worked += worked;
    if (window.passed < 0.02) return alone;
    const double rate = window.worked / window.passed;
    window = Window{};
    if (alone) {
      alone_rate_ = rate;
      known_until_ = now + std::chrono::seconds(2);
      return true;
    }
    // Unless it was seen lately, one thread is taken to get a processor of its own.
    const bool crowded = rate < (now < known_until_ ? alone_rate_ : 1.0);
    // Threads are tried again after a while, and ever less often as long as that fails.
    pause_ = crowded ? std::min(2 * pause_, 1.0) : 0.05;
    if (crowded) alone_until_ = now + std::chrono::microseconds(int64_t(1e6 * pause_));
    return crowded;
  }

  // For tests: the number of phases of each call after which threads withdraw, or -1.
  std::atomic<int64_t> withdraw_after{-1};

 private:
  struct Window {
    double passed = 0, worked = 0;
  };

  std::mutex mutex_;
  Window alone_, together_;
  double alone_rate_ = 1, pause_ = 0.05;
  Clock::time_point alone_until_{}, known_until_{};
};

// Runs work(0) … work(threads - 1) at the same time. The work must not throw.
template <class Work>
void run_threads(int threads, Work work) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; t++) others.emplace_back(work, t);
  work(0);
  for (auto& thread : others) thread.join();
}

// The threads of a call, which go through its phases together: no share begins a phase before all
// have done the one before.
class Team {
 public:
  explicit Team(int shares)
      : shares_(shares), missing_(shares), last_(Clock::now()),
        alone_(shares > 1 && Crowding::of_process().alone(last_)) {}

  // Runs body(thread), a sequence of phases, in every thread. It must not throw.
  template <class Body>
  void run(Body body) {
    run_threads(alone_ ? 1 : shares_, body);
  }

  // Does a phase, with work(share) for each share; false if this thread has nothing more to do.
  template <class Work>
  bool phase(int thread, Work work) {
    if (shares_ == 1) {
      work(0);
      return true;
    }
    const double before = processor_time();
    if (alone_) {
      for (int share = 0; share < shares_; share++) work(share);
      worked_.store(processor_time() - before, std::memory_order_relaxed);
      decide();
      return true;
    }
    work(thread);
    const double worked = processor_time() - before;
    double sum = worked_.load(std::memory_order_relaxed);
    while (!worked_.compare_exchange_weak(sum, sum + worked, std::memory_order_relaxed)) {
    }
    wait();
    return thread == 0 || !alone_;
  }

 private:
  // Of this thread, in seconds.
  static double processor_time() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  }

  // All threads wait until the last has come. They spin for a tenth of a millisecond or so first:
  // to wake a sleeping thread takes as long, and a batch has a hundred layers' worth of waits.
  void wait() {
    const unsigned round = round_.load(std::memory_order_acquire);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard<std::mutex> lock(mutex_);
      decide();
      missing_.store(shares_, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      woken_.notify_all();
      return;
    }
    for (int spin = 0; spin < 200000; spin++)
      if (round_.load(std::memory_order_acquire) != round) return;
    std::unique_lock<std::mutex> lock(mutex_);
    woken_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != round; });
  }

  // Called after each phase by the last thread to come, while the others wait.
  void decide() {
    const auto now = Clock::now();
    const double passed = std::chrono::duration<double>(now - last_).count();
    const double worked = worked_.exchange(0, std::memory_order_relaxed);
    last_ = now;
    phases_++;
    Crowding& crowding = Crowding::of_process();
    const bool crowded = crowding.add(now, passed, worked, alone_);
    const int64_t limit = crowding.withdraw_after;
    alone_ = alone_ || (limit < 0 ? crowded : phases_ >= limit);
  }

  const int shares_;
  std::atomic<int> missing_;
  std::atomic<unsigned> round_{0};
  std::atomic<double> worked_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
  Clock::time_point last_;  // end of the last phase
  int64_t phases_ = 0;
  bool alone_;  // thread 0 does all shares; written only while all other threads wait
};

}  // namespace grass
