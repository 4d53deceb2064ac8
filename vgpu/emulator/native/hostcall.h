/* Host calls: how a kernel's printf and failed assertions reach the host. The device fills a packet, pushes it on the ready stack, and
 * sends an interrupt; here that is served at once. Layout of the buffer and of messages: ROCm's device library (ockl, hostcall) and
 * ROCclr. A packet has eight 64-bit slots per lane; a message is sent in parts of up to seven slots behind a descriptor. */
#include <stdio.h>

enum { HOST_PACKETS = 32, HOST_MESSAGES = 64 * HOST_PACKETS, HOST_WORDS = 1 << 16, SERVICE_PRINTF = 2, HOST_READY = 1 };
enum { HOST_TEXT = 1 << 20 }; /* bytes of a text; a message without long fields has half of it at most */

typedef struct {
    u64 next, lanes;
    u32 service, control;
} HostHeader;

typedef struct {
    u64 headers, payloads, doorbell; /* addresses; the doorbell is an HSA signal: kind, value, mailbox, event */
    u64 free_stack, ready_stack, index_mask;
    u64 signal[4], mailbox;
    HostHeader header[HOST_PACKETS];
    u64 payload[HOST_PACKETS][64][8];
} HostBuffer;

typedef struct {
    u64 *words;
    u32 count, used;
} HostMessage;

typedef struct HostCalls {
    HostMessage messages[HOST_MESSAGES];
} HostCalls;

typedef struct {
    char *text;
    u64 size;
} HostText;

static void host_append(HostText *to, const char *text, u64 size)
{
    char *grown = to->size + size <= HOST_TEXT ? realloc(to->text, to->size + size + 1) : NULL;
    if (!grown)
        return;
    memcpy(grown + to->size, text, size);
    to->text = grown;
    to->size += size;
    to->text[to->size] = 0;
}

/* Words of a text. One that fills the last word has no zero of its own: failed assertions append their text without it. */
static u64 host_words(u64 length, u64 count)
{
    return length < 8 * count ? length / 8 + 1 : count;
}

/* Digits of a field: the C library takes memory for as many as are stated. */
static u64 host_digits(const char *at)
{
    u64 digits = strspn(at, "0123456789");
    return digits <= 3 ? digits : strlen(at);
}

/* Characters of a conversion behind its "%", whose letter is the last one; 0 for one that the C library could take for another:
 * what comes from the device reaches it as a format. */
static u64 host_conversion(const char *format)
{
    const char *at = format + strspn(format, "-+ #0");
    at += host_digits(at);
    if (*at == '.')
        at += 1 + host_digits(at + 1);
    if (*at && strchr("fFeEgGaAcsp", *at))
        return (u64)(at + 1 - format);
    if (*at == 'h' || *at == 'l')
        at += at[1] == at[0] ? 2 : 1;
    else if (*at && strchr("jzt", *at))
        at++;
    return *at && strchr("diouxX", *at) ? (u64)(at + 1 - format) : 0;
}

/* One conversion with its argument; returns how many words it has taken, or 0 for a conversion that cannot be done. */
static u64 host_convert(HostText *to, const char *conversion, char kind, const u64 *words, u64 count)
{
    char made[512];
    int size = 0;
    if (!count)
        return 0;
    if (kind == 's') {
        u64 length = strnlen((const char *)words, 8 * count);
        host_append(to, (const char *)words, length);
        return host_words(length, count);
    }
    if (strchr("diouxXc", kind))
        size = strpbrk(conversion, "ljzt") ? snprintf(made, sizeof made, conversion, words[0])
                                           : snprintf(made, sizeof made, conversion, (int)words[0]);
    else if (kind == 'p')
        size = snprintf(made, sizeof made, conversion, (void *)(uintptr_t)words[0]);
    else
        size = snprintf(made, sizeof made, conversion, as_f64(words[0]));
    if (size > 0)
        host_append(to, made, (u64)size < sizeof made ? (u64)size : sizeof made - 1);
    return 1;
}

/* The text of a printf message: format string, padded to words, then arguments. */
static void host_format(HostText *to, const u64 *words, u64 count)
{
    const char *format = (const char *)words;
    u64 taken = host_words(strnlen(format, 8 * count), count);
    words += taken, count -= taken;
    while (*format) {
        u64 plain = strcspn(format, "%");
        host_append(to, format, plain);
        format += plain;
        if (format[0] == '%' && format[1] == '%') {
            host_append(to, "%", 1);
            format += 2;
        } else if (*format) {
            u64 size = host_conversion(format + 1);
            char conversion[32];
            if (!size || size >= sizeof conversion - 1)
                return;
            memcpy(conversion, format, size + 1);
            conversion[size + 1] = 0;
            u64 taken = host_convert(to, conversion, format[size], words, count);
            if (!taken)
                return;
            words += taken, count -= taken;
            format += size + 1;
        }
    }
}

static void host_print(Wave *w, u32 lane, HostMessage *message)
{
    static const char failed[] = "device assertion failed";
    const Launch *job = w->job;
    HostText text = {NULL, 0};
    u32 error = message->words[0] & 1;
    host_format(&text, message->words + 1, message->count - 1);
    if (text.text && job->print)
        job->print(&(Printed){.user = job->print_user, .group = {w->group[0], w->group[1], w->group[2]}, .wave = w->number,
                              .lane = lane, .error = error, .text = text.text, .bytes = text.size});
    if (error && text.text && !strncmp(text.text, failed, sizeof failed - 1))
        fault(w, FAULT_ASSERT, lane, 0, 0);
    free(text.text);
}

/* A part of a message. Descriptor: bit 0 begins one, bit 1 ends it, bits 5 to 7 words, from bit 8 on its number. */
static void host_message(Wave *w, u32 lane, u64 *slots)
{
    HostMessage *all = w->job->host->messages;
    u64 number = slots[0] >> 8, words = slots[0] >> 5 & 7;
    if (slots[0] & 1)
        for (number = 0; number < HOST_MESSAGES && all[number].used; number++)
            ;
    HostMessage *message = &all[number < HOST_MESSAGES ? number : 0];
    u64 *grown = number < HOST_MESSAGES && (slots[0] & 1 || message->used) && message->count + words <= HOST_WORDS
                     ? realloc(message->words, 8 * (message->count + words + 1))
                     : NULL;
    if (!grown) {
        fault(w, FAULT_HOSTCALL, lane, SERVICE_PRINTF, 0);
        return;
    }
    message->words = grown, message->used = 1;
    memcpy(grown + message->count, slots + 1, 8 * words);
    message->count += (u32)words;
    grown[message->count] = 0; /* ends a text that fills the last word */
    u64 last = slots[0] & 2;
    slots[0] = number << 8 | (slots[0] & 0xfe);
    if (last) {
        if (message->count)
            host_print(w, lane, message);
        free(message->words);
        *message = (HostMessage){NULL, 0, 0};
        slots[0] = 0;
    }
}

/* Serve the packets that are ready. */
SLOW static void host_call(Wave *w)
{
    HostBuffer *buffer = w->job ? w->job->host_buffer : NULL;
    if (!buffer || !w->job->host) {
        fault(w, FAULT_HOSTCALL, 0, 0, 0);
        return;
    }
    u64 ready = __atomic_exchange_n(&buffer->ready_stack, 0, __ATOMIC_ACQ_REL);
    u32 served = 0; /* the device links the packets, in a circle if it is wrong */
    for (; ready && w->state != FAULT && served < HOST_PACKETS; served++) {
        u64 number = ready & (HOST_PACKETS - 1);
        HostHeader *header = &buffer->header[number];
        u64 left = header->lanes;
        ready = header->next;
        if (header->service != SERVICE_PRINTF)
            fault(w, FAULT_HOSTCALL, 0, header->service, 0);
        for (; left && w->state != FAULT; left &= left - 1) {
            u32 lane = (u32)__builtin_ctzll(left);
            host_message(w, lane, buffer->payload[number][lane]);
        }
        __atomic_and_fetch(&header->control, ~(u32)HOST_READY, __ATOMIC_RELEASE);
    }
    if (ready && w->state != FAULT)
        fault(w, FAULT_HOSTCALL, 0, 0, 0);
}
