#include "queue.h"

#include <limits>
#include <new>
#include <utility>

namespace virtual_hip {
namespace {

constexpr uint64_t kEverything = std::numeric_limits<uint64_t>::max();
constexpr unsigned kNonBlocking = 1;  // hipStreamNonBlocking

std::recursive_mutex lazy_lock;  // one piece of work at a time, whatever its stream
uint64_t submitted = 0;

bool is_null(const Stream* stream) { return world().null_streams[static_cast<size_t>(stream->device)].get() == stream; }

std::vector<Stream*> streams_of(int device) {
  const std::lock_guard<std::mutex> guard(world().lock);
  std::vector<Stream*> found{world().null_streams[static_cast<size_t>(device)].get()};
  for (Stream* one : world().streams)
    if (one->device == device) found.push_back(one);
  return found;
}

bool alive(Stream* stream) {
  for (const auto& null_stream : world().null_streams)
    if (null_stream.get() == stream) return true;
  const std::lock_guard<std::mutex> guard(world().lock);
  return world().streams.count(stream) != 0;
}

// Work of `stream` numbered below `end`. The null stream and those that block with it take turns in the order of submission.
void run_before(Stream* stream, uint64_t end) {
  while (!stream->waiting.empty() && stream->waiting.front().first < end) {
    const auto [number, work] = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (is_null(stream)) {
      for (Stream* other : streams_of(stream->device))
        if (other != stream && (other->flags & kNonBlocking) == 0) run_before(other, number);
    } else if ((stream->flags & kNonBlocking) == 0) {
      run_before(world().null_streams[static_cast<size_t>(stream->device)].get(), number);
    }
    work();
  }
}

}  // namespace

void before_fork() {
  if (world().settings.lazy) lazy_lock.lock();
  world().lock.lock();
}

void after_fork_in_parent() {
  world().lock.unlock();
  if (world().settings.lazy) lazy_lock.unlock();
}

void after_fork_in_child() {
  World& w = world();
  w.lock.unlock();
  new (&lazy_lock) std::recursive_mutex;
  for (const auto& stream : w.null_streams) new (&stream->order) std::mutex;
  for (Stream* stream : w.streams) new (&stream->order) std::mutex;
}

uint64_t submit(Stream* stream, std::function<void()> work) {
  if (!world().settings.lazy) {
    const std::lock_guard<std::mutex> guard(stream->order);
    work();
    return 0;
  }
  const std::lock_guard<std::recursive_mutex> guard(lazy_lock);
  stream->waiting.emplace_back(++submitted, std::move(work));
  return submitted;
}

void drain(Stream* stream) {
  if (!world().settings.lazy) {  // another thread may be at work on it
    const std::lock_guard<std::mutex> guard(stream->order);
    return;
  }
  const std::lock_guard<std::recursive_mutex> guard(lazy_lock);
  run_before(stream, kEverything);
  // what the null stream has to finish first is finished even when its own queue is empty
  if (is_null(stream))
    for (Stream* other : streams_of(stream->device))
      if ((other->flags & kNonBlocking) == 0) run_before(other, kEverything);
}

void drain_to(Stream* stream, uint64_t number) {
  if (!world().settings.lazy) return;
  const std::lock_guard<std::recursive_mutex> guard(lazy_lock);
  if (alive(stream)) run_before(stream, number + 1);
}

void drain_device(int device) {
  if (!world().settings.lazy) return;
  const std::lock_guard<std::recursive_mutex> guard(lazy_lock);
  for (Stream* one : streams_of(device)) run_before(one, kEverything);
}

bool retire(Stream* stream) {
  std::unique_lock<std::recursive_mutex> others(lazy_lock, std::defer_lock);
  if (world().settings.lazy) others.lock();
  {
    const std::lock_guard<std::mutex> guard(world().lock);
    if (world().streams.count(stream) == 0) return false;
  }
  drain(stream);
  const std::lock_guard<std::mutex> guard(world().lock);
  if (world().streams.erase(stream) == 0) return false;
  delete stream;
  return true;
}

bool idle(Stream* stream) {
  if (!world().settings.lazy) return true;
  const std::lock_guard<std::recursive_mutex> guard(lazy_lock);
  const bool before = stream->waiting.empty();
  run_before(stream, kEverything);
  return before;
}

}  // namespace virtual_hip
