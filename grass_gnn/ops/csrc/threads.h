// Threads that exist only during one call, so they never compete with torch's own pool.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace grass {

// A barrier. Threads first spin for about a tenth of a millisecond: waking a sleeping thread takes
// as long, and a training step waits a hundred times.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads), missing_(threads) {}

  void wait() {
    if (threads_ == 1) return;
    const unsigned round = round_.load(std::memory_order_acquire);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard<std::mutex> lock(mutex_);
      missing_.store(threads_, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      woken_.notify_all();
      return;
    }
    for (int spin = 0; spin < 200000; spin++)
      if (round_.load(std::memory_order_acquire) != round) return;
    std::unique_lock<std::mutex> lock(mutex_);
    woken_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != round; });
  }

 private:
  const int threads_;
  std::atomic<int> missing_;
  std::atomic<unsigned> round_{0};
  std::mutex mutex_;
  std::condition_variable woken_;
};

// Runs work(0) … work(threads - 1) at the same time. The work must not throw.
template <class Work>
void run_threads(int threads, Work work) {
  std::vector<std::thread> others;
  for (int t = 1; t < threads; t++) others.emplace_back(work, t);
  work(0);
  for (auto& thread : others) thread.join();
}

// The same with one Worker(state, t) per thread, whose memory is allocated before any of them runs.
template <class Worker, class State>
void run_workers(int threads, State& state) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int t = 0; t < threads; t++) workers.push_back(std::make_unique<Worker>(state, t));
  run_threads(threads, [&](int t) { workers[t]->run(); });
}

}  // namespace grass
