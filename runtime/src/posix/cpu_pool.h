// Threads that share the programs of a launch, and the memory that each of them brings.
//
// The calling thread works, too. One launch at a time has the threads: another one runs in its caller's thread, as does one from inside
// a program. Objects are not copied to forked children: those make their own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace aotforge {

class CpuPool {
 public:
  // Runs programs begin .. end - 1 in the calling thread.
  class Work {
   public:
    virtual void run(uint64_t begin, uint64_t end) = 0;

   protected:
    ~Work() = default;
  };

  CpuPool() = default;
  ~CpuPool();
  CpuPool(const CpuPool&) = delete;
  CpuPool& operator=(const CpuPool&) = delete;

  // Runs `count` programs on at most `threads` threads, and waits.
  void run(uint64_t count, unsigned threads, Work& work);

  // Memory for one thread, page-aligned, of at least `size` bytes; null when there is none. Freed memory is kept for later launches.
  class Memory {
   public:
    Memory(CpuPool& pool, size_t size);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    void* data() const { return block_.data; }

   private:
    friend class CpuPool;
    struct Block {
      void* data;
      size_t size;
    };
    CpuPool& pool_;
    Block block_;
  };

 private:
  void serve();
  void take();
  void grow(unsigned wanted);

  std::mutex launch_;  // held by the launch that has the threads

  // Of the current launch. `places_`: workers that may still join; `active_`: those that did and have not finished.
  Work* work_ = nullptr;
  uint64_t count_ = 0, chunk_ = 1;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> generation_{0};

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, done_;
  unsigned places_ = 0, active_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;

  std::mutex memory_mutex_;  // guards blocks_
  std::vector<Memory::Block> blocks_;
};

}  // namespace aotforge
