// The order in which work of streams is executed. Eager (the default): when it is submitted, in the calling thread. Lazy (AOTFORGE_VIRTUAL=order=lazy): when
// something waits for it and never before, so a program that forgets to wait reads what was there before, every time.
#pragma once

#include <functional>

#include "world.h"

namespace virtual_hip {

// The number of the work, for drain_to.
uint64_t submit(Stream* stream, std::function<void()> work);
void drain(Stream* stream);
// Everything of a stream up to and with one piece of work. A stream that is gone has nothing left.
void drain_to(Stream* stream, uint64_t number);
void drain_device(int device);
// Drains a stream and deletes it, while no other thread can be on its way through it. False: there is none.
bool retire(Stream* stream);
// Whether nothing is left; if something was, it is executed now, so that programs that poll come to an end.
bool idle(Stream* stream);
// A fork waits until no thread changes a table. In the child no stream is busy: the threads that were at work do not exist there.
void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace virtual_hip
