#include "posix/cpu_pool.h"

#include <pthread.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <system_error>

namespace aotforge {
namespace {

constexpr unsigned kSpins = 2000;  // looks at the next launch before a worker sleeps: about 50 microseconds
constexpr uint64_t kChunks = 64;   // per thread, so that threads that are late get less
constexpr size_t kMemoryPage = 4096;

inline void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// Threads that are made meanwhile get no signals: those are for the program's own threads.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

CpuPool::~CpuPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const Memory::Block& block : blocks_) std::free(block.data);
}

void CpuPool::run(uint64_t count, unsigned threads, Work& work) {
  if (threads > count) threads = static_cast<unsigned>(count);
  if (threads < 2 || !launch_.try_lock()) return work.run(0, count);
  const std::lock_guard<std::mutex> held(launch_, std::adopt_lock);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    grow(threads - 1);
    work_ = &work;
    count_ = count;
    chunk_ = count / (threads * kChunks) + (count < threads * kChunks ? 1 : 0);
    next_.store(0, std::memory_order_relaxed);
    places_ = threads - 1;
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  take();
  std::unique_lock<std::mutex> lock(mutex_);
  places_ = 0;  // who wakes up from now on finds nothing left
  done_.wait(lock, [this] { return active_ == 0; });
}

// Programs that no thread has taken yet, until there are none.
void CpuPool::take() {
  for (;;) {
    const uint64_t begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
    if (begin >= count_) return;
    work_->run(begin, count_ - begin < chunk_ ? count_ : begin + chunk_);
  }
}

void CpuPool::serve() {
  uint64_t seen = 0;
  for (;;) {
    for (unsigned turn = 0; turn < kSpins && generation_.load(std::memory_order_relaxed) == seen; ++turn) relax();
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return stop_ || generation_.load(std::memory_order_relaxed) != seen; });
    if (stop_) return;
    seen = generation_.load(std::memory_order_relaxed);
    if (places_ == 0) continue;
    --places_;
    ++active_;
    lock.unlock();
    take();
    lock.lock();
    if (--active_ == 0) done_.notify_one();
  }
}

// Workers up to `wanted`; fewer where the system has no more threads.
void CpuPool::grow(unsigned wanted) {
  if (threads_.size() >= wanted) return;
  const NoSignals none;
  try {
    threads_.reserve(wanted);
    while (threads_.size() < wanted) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {  // the others do the work
  } catch (const std::bad_alloc&) {
  }
}

CpuPool::Memory::Memory(CpuPool& pool, size_t size) : pool_(pool), block_{nullptr, 0} {
  {
    const std::lock_guard<std::mutex> lock(pool_.memory_mutex_);
    std::vector<Block>& kept = pool_.blocks_;
    if (!kept.empty()) {  // one that is too small is replaced, so that there are never more than threads at once
      size_t at = kept.size() - 1;
      while (at > 0 && kept[at].size < size) --at;
      block_ = kept[at];
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  if (block_.data != nullptr && block_.size >= size) return;
  std::free(block_.data);
  const size_t rounded = (size + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
  block_ = {std::aligned_alloc(kMemoryPage, rounded), rounded};
}

CpuPool::Memory::~Memory() {
  if (block_.data == nullptr) return;
  const std::lock_guard<std::mutex> lock(pool_.memory_mutex_);
  try {
    pool_.blocks_.push_back(block_);
  } catch (const std::bad_alloc&) {
    std::free(block_.data);
  }
}

}  // namespace aotforge
