/* serve_abi.h for this interpreter: restores the pointers of a file that blob.py wrote. */

typedef struct {
    const ServeFile *file;
    Instruction *program;
} Served;

/* These numbers fit in the arrays that a launch copies or fills with them. */
static int serve_sane(const ServeFile *file, const Launch *plan)
{
    u32 kernarg = file->kernarg_sgpr, preload = file->preload_sgpr, users = sizeof plan->user / sizeof *plan->user;
    u64 preloaded = 4 * ((u64)file->preload_first + file->preload_count);
    return plan->entry < plan->length && plan->waves >= 1 && plan->waves <= 32 && plan->vgprs <= AGPR0 && plan->item_ids <= 3 &&
           plan->user_values <= plan->user_sgprs && plan->user_sgprs <= users && (kernarg == SERVE_NONE || kernarg < users - 1) &&
           (preload == SERVE_NONE || (preload < users && file->preload_count <= users - preload && preloaded <= file->kernarg_bytes + 8ull)) &&
           memchr(file->kernel, 0, sizeof file->kernel) && memchr(file->arch, 0, sizeof file->arch) &&
           memchr(file->digest, 0, sizeof file->digest);
}

static int serve_fits(const ServeFile *file, u64 bytes)
{
    if (bytes < sizeof *file || memcmp(file->magic, SERVE_MAGIC, 8) || file->bytes != bytes)
        return 0;
    for (int i = 0; i < 4; i++)
        if (file->sizes[i] != size_of(i))
            return 0;
    if (file->launch_at > bytes || sizeof(Launch) > bytes - file->launch_at)
        return 0;
    const Launch *plan = (const Launch *)((const u8 *)file + file->launch_at);
    return file->program_at <= bytes && (u64)plan->length * sizeof(Instruction) <= bytes - file->program_at && file->effects_at <= bytes &&
           file->effect_bytes == sizeof(Effects) && (u64)plan->length * sizeof(Effects) <= bytes - file->effects_at && file->rows_at <= bytes &&
           (u64)file->row_count * 8 * LANES <= bytes - file->rows_at && file->parameters_at <= bytes &&
           (u64)file->parameter_count * sizeof(ServeParameter) <= bytes - file->parameters_at && file->image_at <= bytes &&
           file->image_bytes <= bytes - file->image_at && file->kernel_at <= file->image_bytes && serve_sane(file, plan);
}

static int serve_row(const ServeFile *file, Operand *operand)
{
    u64 number = (u64)(uintptr_t)operand->row;
    if (number > file->row_count)
        return 0;
    if (number)
        operand->row = (const u32 *)((const u8 *)file + file->rows_at) + (number - 1) * 2 * LANES;
    return 1;
}

void *serve_open(const void *data, u64 bytes)
{
    const ServeFile *file = data;
    if (!serve_fits(file, bytes))
        return NULL;
    const Launch *plan = (const Launch *)((const u8 *)data + file->launch_at);
    Served *served = malloc(sizeof *served);
    Instruction *program = malloc(sizeof(Instruction) * plan->length);
    int valid = served && program;
    if (valid)
        memcpy(program, (const u8 *)data + file->program_at, sizeof(Instruction) * plan->length);
    for (u32 i = 0; valid && i < plan->length; i++) {
        Instruction *I = &program[i];
        valid = I->opcode < sizeof handlers / sizeof *handlers && serve_row(file, &I->d) && serve_row(file, &I->sd);
        for (int k = 0; valid && k < 4; k++)
            valid = serve_row(file, &I->s[k]);
        if (valid)
            I->handler = handlers[I->opcode];
        valid = valid && I->handler;
    }
    if (!valid) {
        free(program);
        free(served);
        return NULL;
    }
    *served = (Served){file, program};
    return served;
}

void serve_close(void *program)
{
    Served *served = program;
    if (served)
        free(served->program);
    free(served);
}

int serve_run(const void *program, ServeLaunch *call)
{
    const Served *served = program;
    const ServeFile *file = served->file;
    Launch job;
    memcpy(&job, (const u8 *)file + file->launch_at, sizeof job);
    Range *ranges = malloc(sizeof(Range) * (call->range_count + 3));
    job.counts = calloc(job.length, sizeof(u64));
    if (!ranges || !job.counts) {
        free(ranges);
        free(job.counts);
        return -1;
    }
    for (u64 i = 0; i < call->range_count; i++)
        ranges[i] = (Range){.low = call->ranges[i].low, .high = call->ranges[i].high, .writable = call->ranges[i].writable,
                            .unset = call->ranges[i].unset};
    u64 kernarg = (u64)(uintptr_t)call->kernarg;
    ranges[call->range_count] = (Range){.low = kernarg, .high = kernarg + file->kernarg_bytes, .writable = 0};
    job.ranges = ranges;
    job.range_count = (u32)call->range_count + 1;
    u64 image = (u64)(uintptr_t)file + file->image_at, buffer = (u64)(uintptr_t)call->host_buffer;
    if (file->image_bytes) {
        job.code_base = image + file->kernel_at;
        ranges[job.range_count++] = (Range){.low = image, .high = image + file->image_bytes};
    }
    if (buffer)
        ranges[job.range_count++] = (Range){.low = buffer, .high = buffer + host_buffer_bytes(), .writable = 1};
    job.host_buffer = call->host_buffer;
    job.print = (void (*)(const Printed *))call->print;
    job.program = served->program;
    job.effects = (const Effects *)((const u8 *)file + file->effects_at);
    job.checks = call->checks;
    memcpy(job.grid, call->grid, sizeof job.grid);
    job.lds_bytes += call->lds_bytes;
    job.seed = call->schedule ? call->seed << 32 ^ call->schedule : call->seed;
    job.schedule = call->schedule != 0;
    job.limit = call->limit;
    job.next = call->next;
    job.stop = call->stop;
    if (file->kernarg_sgpr != SERVE_NONE)
        memcpy(&job.user[file->kernarg_sgpr], &kernarg, sizeof kernarg);
    if (file->preload_sgpr != SERVE_NONE)
        memcpy(&job.user[file->preload_sgpr], (const u8 *)call->kernarg + 4 * (u64)file->preload_first, 4 * (size_t)file->preload_count);
    int result = run(&job);
    call->executed = job.executed;
    call->fault_bytes = sizeof job.fault < SERVE_FAULT_BYTES ? sizeof job.fault : SERVE_FAULT_BYTES;
    call->fault_code = job.fault.code;
    memcpy(call->fault, &job.fault, call->fault_bytes);
    free(ranges);
    free(job.counts);
    return result;
}
