; A launch: the programs of a grid on the threads of one pool per process.
;
; Request: { i32 x, i32 y, i32 z, i32 threads, ptr function, i64 scratch, arguments ... }. `function` takes the arguments and a Range (see
; `_export` in lowering.py). The result is the status word: 0, the number of the assertion that failed,
; or -1 without memory.
;
; The calling thread works too; workers that wake up late find nothing left and are not waited for. One launch at a time has the pool: a
; launch from a second thread, or from a program, runs in its own thread. A forked child makes a new pool.

%Range = type { i32, i32, i32, i32, i64, i64, ptr, ptr }
; grid, unused, first program, last + 1, scratch memory, status word

@busy = internal global i32 0       ; 1: a launch has the pool
@owner = internal global i32 0      ; the process whose threads these are
@workers = internal global i32 0
@generation = internal global i32 0 ; changes with every launch; idle workers wait for that
@sleeping = internal global i32 0   ; workers that wait in the kernel
@open = internal global i32 0       ; 1: workers may join
@active = internal global i32 0     ; workers that look at the launch
@places = internal global i32 0     ; workers that may still join
@next = internal global i64 0       ; first program that nobody has taken
@count = internal global i64 0
@chunk = internal global i64 0
@request = internal global ptr null
@status = internal global ptr null
@key = internal global i32 -1       ; frees the scratch memory of threads that end
@scratch = internal thread_local global ptr null
@scratch_size = internal thread_local global i64 0

declare i64 @syscall(i64, ...)
declare i32 @getpid()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @pthread_key_create(ptr, ptr)
declare i32 @pthread_setspecific(i32, ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.x86.sse2.pause()

define internal void @futex_wait(ptr %word, i32 %value) nounwind {
  %ignored = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 128, i32 %value, ptr null, ptr null, i64 0)
  ret void
}

define internal void @futex_wake(ptr %word, i32 %number) nounwind {
  %ignored = call i64 (i64, ...) @syscall(i64 202, ptr %word, i64 129, i32 %number, ptr null, ptr null, i64 0)
  ret void
}

; This thread's memory, at least `size` bytes; null where there is none.
define internal ptr @thread_scratch(i64 %size) nounwind {
  %held = load i64, ptr @scratch_size
  %enough = icmp uge i64 %held, %size
  br i1 %enough, label %done, label %grow
grow:
  %old = load ptr, ptr @scratch
  call void @free(ptr %old)
  %up = add i64 %size, 4095
  %rounded = and i64 %up, -4096
  %new = call ptr @aligned_alloc(i64 4096, i64 %rounded)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %fail, label %keep
fail:
  store ptr null, ptr @scratch
  store i64 0, ptr @scratch_size
  ret ptr null
keep:
  store ptr %new, ptr @scratch
  store i64 %rounded, ptr @scratch_size
  %number = load atomic i32, ptr @key seq_cst, align 4
  %ignored = call i32 @pthread_setspecific(i32 %number, ptr %new)
  br label %done
done:
  %result = load ptr, ptr @scratch
  ret ptr %result
}

; Programs begin .. end-1 in this thread.
define internal void @run_range(ptr %request, i64 %begin, i64 %end, ptr %status) nounwind {
  %range = alloca %Range, align 8
  %x = load i64, ptr %request
  store i64 %x, ptr %range
  %z.at = getelementptr i8, ptr %request, i64 8
  %z = load i32, ptr %z.at
  %z.to = getelementptr i8, ptr %range, i64 8
  store i32 %z, ptr %z.to
  %function.at = getelementptr i8, ptr %request, i64 16
  %function = load ptr, ptr %function.at
  %size.at = getelementptr i8, ptr %request, i64 24
  %size = load i64, ptr %size.at
  %arguments = getelementptr i8, ptr %request, i64 32
  %memory = call ptr @thread_scratch(i64 %size)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %fail, label %run
fail:
  store i32 -1, ptr %status
  ret void
run:
  %begin.to = getelementptr i8, ptr %range, i64 16
  store i64 %begin, ptr %begin.to
  %end.to = getelementptr i8, ptr %range, i64 24
  store i64 %end, ptr %end.to
  %memory.to = getelementptr i8, ptr %range, i64 32
  store ptr %memory, ptr %memory.to
  %status.to = getelementptr i8, ptr %range, i64 40
  store ptr %status, ptr %status.to
  %reported = call i32 %function(ptr %arguments, ptr %range)
  ret void
}

; Take chunks until none is left.
define internal void @work() nounwind {
entry:
  %count = load i64, ptr @count
  %chunk = load i64, ptr @chunk
  %request = load ptr, ptr @request
  %status = load ptr, ptr @status
  br label %take
take:
  %begin = atomicrmw add ptr @next, i64 %chunk seq_cst
  %left = icmp slt i64 %begin, %count
  br i1 %left, label %run, label %done
run:
  %after = add i64 %begin, %chunk
  %beyond = icmp sgt i64 %after, %count
  %end = select i1 %beyond, i64 %count, i64 %after
  call void @run_range(ptr %request, i64 %begin, i64 %end, ptr %status)
  br label %take
done:
  ret void
}

; A worker: wait for a launch, join it if it is open and has a place, again.
define internal ptr @worker(ptr %ignored) nounwind {
entry:
  br label %join
join:
  %seen = load atomic i32, ptr @generation seq_cst, align 4
  %a = atomicrmw add ptr @active, i32 1 seq_cst
  %is.open = load atomic i32, ptr @open seq_cst, align 4
  %may = icmp ne i32 %is.open, 0
  br i1 %may, label %place, label %leave
place:
  %number = atomicrmw sub ptr @places, i32 1 seq_cst
  %free = icmp sgt i32 %number, 0
  br i1 %free, label %help, label %leave
help:
  call void @work()
  br label %leave
leave:
  %were = atomicrmw sub ptr @active, i32 1 seq_cst
  %last = icmp eq i32 %were, 1
  br i1 %last, label %tell, label %idle
tell:
  %closed = load atomic i32, ptr @open seq_cst, align 4
  %waits = icmp eq i32 %closed, 0
  br i1 %waits, label %wake, label %idle
wake:
  call void @futex_wake(ptr @active, i32 1)
  br label %idle
idle:
  br label %spin
spin:
  %turn = phi i32 [ 0, %idle ], [ %turn.next, %again ]
  %now = load atomic i32, ptr @generation seq_cst, align 4
  %new = icmp ne i32 %now, %seen
  br i1 %new, label %join, label %again
again:
  call void @llvm.x86.sse2.pause()
  %turn.next = add i32 %turn, 1
  %enough = icmp ugt i32 %turn.next, 2000
  br i1 %enough, label %sleep, label %spin
sleep:
  %s = atomicrmw add ptr @sleeping, i32 1 seq_cst
  call void @futex_wait(ptr @generation, i32 %seen)
  %w = atomicrmw sub ptr @sleeping, i32 1 seq_cst
  br label %idle
}

; Workers up to `wanted`, which get no signals; fewer where the system has no more threads.
define internal void @grow(i32 %wanted) nounwind {
entry:
  %thread = alloca i64
  %all = alloca [128 x i8]
  %before = alloca [128 x i8]
  %f = call i32 @sigfillset(ptr %all)
  ; faults: their handlers, where a program has some, run in the thread that has the fault
  %bus = call i32 @sigdelset(ptr %all, i32 7)
  %fpe = call i32 @sigdelset(ptr %all, i32 8)
  %ill = call i32 @sigdelset(ptr %all, i32 4)
  %segv = call i32 @sigdelset(ptr %all, i32 11)
  %m = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %before)
  br label %check
check:
  %have = load i32, ptr @workers
  %more = icmp slt i32 %have, %wanted
  br i1 %more, label %make, label %done
make:
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr null)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %made, label %done
made:
  %id = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %id)
  %sum = add i32 %have, 1
  store i32 %sum, ptr @workers
  br label %check
done:
  %r = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}

; Whether this thread got the pool. The first caller in a process, and in a forked child, makes it anew.
define internal i1 @acquire() nounwind {
  %process = call i32 @getpid()
  %owner = load atomic i32, ptr @owner seq_cst, align 4
  %same = icmp eq i32 %process, %owner
  br i1 %same, label %try, label %new
new:
  %pair = cmpxchg ptr @owner, i32 %owner, i32 %process seq_cst seq_cst
  %won = extractvalue { i32, i1 } %pair, 1
  br i1 %won, label %reset, label %no
reset:
  store i32 0, ptr @workers
  store i32 0, ptr @sleeping
  store i32 0, ptr @open
  store i32 0, ptr @active
  store atomic i32 1, ptr @busy seq_cst, align 4
  ret i1 true
try:
  %taken = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %got = extractvalue { i32, i1 } %taken, 1
  ret i1 %got
no:
  ret i1 false
}

define internal void @share(ptr %request, i64 %count, i32 %threads, ptr %status) nounwind {
entry:
  %others = sub i32 %threads, 1
  call void @grow(i32 %others)
  %wide = zext i32 %threads to i64
  %pieces = mul i64 %wide, 64
  %size = udiv i64 %count, %pieces
  %none = icmp eq i64 %size, 0
  %chunk = select i1 %none, i64 1, i64 %size
  store i64 %count, ptr @count
  store i64 %chunk, ptr @chunk
  store ptr %request, ptr @request
  store ptr %status, ptr @status
  store atomic i64 0, ptr @next seq_cst, align 8
  store atomic i32 %others, ptr @places seq_cst, align 4
  store atomic i32 1, ptr @open seq_cst, align 4
  %g = atomicrmw add ptr @generation, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleeping seq_cst, align 4
  %some = icmp sgt i32 %asleep, 0
  br i1 %some, label %wake, label %begin
wake:
  call void @futex_wake(ptr @generation, i32 %others)
  br label %begin
begin:
  call void @work()
  store atomic i32 0, ptr @open seq_cst, align 4
  br label %wait
wait:
  %turn = phi i32 [ 0, %begin ], [ %turn.next, %pause ], [ 0, %sleep ]
  %busy = load atomic i32, ptr @active seq_cst, align 4
  %finished = icmp eq i32 %busy, 0
  br i1 %finished, label %done, label %spin
spin:
  %long = icmp ugt i32 %turn, 2000
  br i1 %long, label %sleep, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  %turn.next = add i32 %turn, 1
  br label %wait
sleep:
  call void @futex_wait(ptr @active, i32 %busy)
  br label %wait
done:
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

define internal void @make_key() nounwind {
  %made = alloca i32
  store i32 -1, ptr %made
  %failed = call i32 @pthread_key_create(ptr %made, ptr @free)
  %number = load i32, ptr %made
  %pair = cmpxchg ptr @key, i32 -1, i32 %number seq_cst seq_cst
  ret void
}

define i32 @aotforge_cpu_launch__range(ptr %request, ptr %ignored) nounwind {
entry:
  %status = alloca i32
  store i32 0, ptr %status
  %known = load atomic i32, ptr @key seq_cst, align 4
  %first = icmp eq i32 %known, -1
  br i1 %first, label %prepare, label %measure
prepare:
  call void @make_key()
  br label %measure
measure:
  %x = load i32, ptr %request
  %y.at = getelementptr i8, ptr %request, i64 4
  %y = load i32, ptr %y.at
  %z.at = getelementptr i8, ptr %request, i64 8
  %z = load i32, ptr %z.at
  %threads.at = getelementptr i8, ptr %request, i64 12
  %asked = load i32, ptr %threads.at
  %wide.x = zext i32 %x to i64
  %wide.y = zext i32 %y to i64
  %wide.z = zext i32 %z to i64
  %xy = mul i64 %wide.x, %wide.y
  %count = mul i64 %xy, %wide.z
  %wide.asked = zext i32 %asked to i64
  %fewer = icmp slt i64 %count, %wide.asked
  %narrow = trunc i64 %count to i32
  %threads = select i1 %fewer, i32 %narrow, i32 %asked
  %several = icmp ugt i32 %threads, 1
  br i1 %several, label %ask, label %alone
ask:
  %got = call i1 @acquire()
  br i1 %got, label %pool, label %alone
pool:
  call void @share(ptr %request, i64 %count, i32 %threads, ptr %status)
  br label %done
alone:
  call void @run_range(ptr %request, i64 0, i64 %count, ptr %status)
  br label %done
done:
  %result = load i32, ptr %status
  ret i32 %result
}
