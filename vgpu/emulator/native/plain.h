/* The plain variant: every hook compiles to nothing. Another variant's header (generate.py) defines the same hooks:
 *   observe             every access to global memory, LDS or scratch, once per lane, after its bounds check (memory.h); `address`
 *                       is global, or a byte of the workgroup's LDS, or a byte of the lane's scratch; scalar loads are lane 0
 *   observe_global, observe_local   such an access by all active lanes at once, with its bytes in one buffer or in the workgroup's LDS;
 *                       `count` of them by each lane. Returns 0 to get it lane by lane instead
 *   begin_instruction, end_instruction   around each executed instruction; I->handler runs between them unless the
 *                       first returned 0 after a fault
 *   begin_group, end_group   around each workgroup, its waves ready; barrier_released: all of its waves have arrived
 *   begin_launch, end_launch   around a thread's share of a launch; begin_launch returns 0 without memory
 * Wave.observer and Launch.observer are the variant's own. */

INLINE void observe(Wave *w, const Instruction *I, int space, int kind, int lane, u64 address, u64 bytes)
{
    (void)w, (void)I, (void)space, (void)kind, (void)lane, (void)address, (void)bytes;
}

INLINE int observe_global(Wave *w, const Instruction *I, int kind, const u64 *addresses, u64 exec, u64 bytes)
{
    (void)w, (void)I, (void)kind, (void)addresses, (void)exec, (void)bytes;
    return 1;
}
INLINE int observe_local(Wave *w, const Instruction *I, int kind, const u32 (*addresses)[LANES], int count, u64 exec, u64 bytes)
{
    (void)w, (void)I, (void)kind, (void)addresses, (void)count, (void)exec, (void)bytes;
    return 1;
}

INLINE int begin_launch(Launch *job, Wave *waves) { return (void)job, (void)waves, 1; }
INLINE void end_launch(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE void begin_group(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE void end_group(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE void barrier_released(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE int begin_instruction(Launch *job, Wave *w, const Instruction *I) { return (void)job, (void)w, (void)I, 1; }
INLINE void end_instruction(Launch *job, Wave *w, const Instruction *I) { (void)job, (void)w, (void)I; }
