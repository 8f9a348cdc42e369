/* Formats of a recorder's files: records, chunk files and track files.
 * `kinetoscope/spool/chunk.py` reads them.
 *
 * A record is 32 bytes, little-endian on all machines:
 *
 *      0  int64   begin    nanoseconds on the monotonic clock
 *      8  int64   end      nanoseconds; a counter's value (integer or double); 0 for an instant
 *     16  uint32  name     line of the names file
 *     20  uint32  batch    batch of the training loop
 *     24  uint16  depth    number of open spans on the thread at its start
 *     26  uint8   kind     1 span, 2 instant, 3 counter, 6 a track mark (see below); 0: nothing yet
 *     27  uint8   flags    1 truncated at the window's end, 2 the value is a double
 *     28  uint32  series   for a counter the line of the value's name in the names file
 *
 * The last eight bytes are stored last, by one instruction: a process may be killed between any
 * two instructions, and all earlier stores stay in the file. A record whose kind is not 0 is
 * therefore complete.
 *
 * A chunk is written by one thread at a time. When that has ended, another may continue it. A track
 * mark has the thread of the records after it, up to the next mark; each chunk begins with one.
 * `kinetoscope/spool/record.py` reads them:
 *
 *      0  bytes    name     20 bytes of the thread's name in UTF-8, filled up with zeros; a mark of
 *                           the same track right behind this one has 20 more. A mark at a chunk's
 *                           end may lack some.
 *     20  uint32   track    the number of the thread's track: no two threads of a process have the
 *                           same
 *     24  uint16            0
 *     26  uint8   kind     6
 *     27  uint8   flags    4 it is the process's main thread
 *     28  uint32  tid      the system's number of the thread
 *
 * A live folder belongs to one run of one process, and has for each process that records there
 * (a forked child has its own files in the same folder):
 *
 *     {pid}-{n}.run       a Control: the current action. Child processes (dataloader workers)
 *                         map it, and record when it has an action, into separate files
 *     run.json, windows.jsonl, owner.lock
 *                         the owner of the folder, the saved windows, and the owner's lock:
 *                         `folders.py`, `window_log.py`, `owner_lock.py` in `kinetoscope/spool/`
 *     {pid}.names         one JSON line per name: {"name": ..., "categories": [...]}; the first
 *                         line is name 0
 *     {pid}-{n}.track     one per running thread: a TrackHeader, then its open spans. A new thread
 *                         reuses the file of one that has ended.
 *     {pid}-{n}.chunk     a ChunkHeader, then records in the order in which they ended; a thread
 *                         fills one after the other. The space after the last record is zero.
 *     {pid}-{w}.spool     the full chunks of window w, packed:
 *                         `kinetoscope/spool/chunk.py` writes it. For each chunk there is a
 *                         ChunkHeader (with SPOOL_MAGIC, the number of records, and the length of
 *                         the packed ones), then the records, deflated. The chunk's file is
 *                         deleted afterwards, so for a moment there may be both.
 *
 * The open spans of a track are slots, not a stack: tasks and generators leave in any order. A slot
 * is a record of kind 1 while its span is open, with the window's number where a counter has its
 * series. A span that ends is written to a chunk before its slot is cleared: a reader that reads
 * the slots first, then the chunks, gets every span, and a few of them twice.
 *
 * Files are allocated before they are mapped, since writing to a mapped hole on a full disk is a
 * SIGBUS. */

#ifndef KINETOSCOPE_RECORD_H
#define KINETOSCOPE_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

#define CHUNK_MAGIC "KSCHUNK"
#define SPOOL_MAGIC "KSSPOOL"
#define TRACK_MAGIC "KSTRACK"
#define CONTROL_MAGIC "KSRUN\0\0"
#define FORMAT_VERSION 2

enum Kind { KIND_SPAN = 1, KIND_INSTANT = 2, KIND_COUNTER = 3, KIND_MARK = 6 };
/* the two ends of a span; in memory only, see pairs.c */
enum Bracket { KIND_BEGIN = 4, KIND_END = 5 };
enum Flag { FLAG_CUT = 1, FLAG_FLOAT = 2, FLAG_MAIN = 4 };

/* Words that other threads or processes read at the same time. Each is stored atomically, after
 * everything that was stored earlier. On x86-64 these are plain moves. */
typedef _Atomic(uint32_t) SharedWord;
typedef _Atomic(uint64_t) SharedLong;
#define shared_load(word) atomic_load_explicit(word, memory_order_acquire)
#define shared_store(word, value) atomic_store_explicit(word, value, memory_order_release)
/* Stores after this are visible to readers only after the stores before it. */
#define shared_barrier() atomic_thread_fence(memory_order_release)

_Static_assert(sizeof(SharedWord) == 4 && sizeof(SharedLong) == 8,
               "shared words are words of a file as well");

typedef union {
    int64_t integer;
    double real;
} Value;

typedef struct {
    int64_t begin;
    Value end;
    uint32_t name;
    uint32_t batch;
    uint64_t tail; /* depth, kind, flags, series: see record_tail */
} Record;

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t pid;
    SharedWord track; /* the first track that writes to it; 0 in a spare chunk */
    uint32_t window;
    uint32_t sequence;     /* number of the chunk, in the order in which the process began them */
    uint32_t num_records;  /* its capacity */
    uint32_t packed_bytes; /* in a spool only */
    uint32_t rank;
    int64_t monotonic_ns; /* one moment on two clocks */
    int64_t unix_ns;
    uint8_t reserved[8];
} ChunkHeader;

#define THREAD_NAME_BYTES 128
#define MARK_NAME_BYTES 20

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t pid;
    uint32_t track;
    uint32_t tid;
    uint32_t rank;
    uint32_t is_main;
    int64_t monotonic_ns; /* one moment on two clocks */
    int64_t unix_ns;
    SharedLong num_dropped; /* records of one window that were dropped for lack of space */
    SharedWord num_slots;
    uint32_t reserved;
    char name[THREAD_NAME_BYTES];
    SharedLong dropped_ns; /* when the last one was dropped, on the monotonic clock */
    uint8_t reserved_too[56];
} TrackHeader;

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t pid;
    SharedWord action; /* one bit; 0: nothing is recorded */
    SharedWord batch;
    SharedWord window; /* 0 while none is open */
    uint32_t rank;
} Control;

_Static_assert(sizeof(Control) == 32, "the control is as long as a record");
_Static_assert(sizeof(Record) == 32, "a record is 32 bytes");
_Static_assert(sizeof(ChunkHeader) == 64, "a chunk's header is as long as two records");
_Static_assert(sizeof(TrackHeader) == 256, "a track's header is as long as eight records");

static inline uint64_t record_tail(uint32_t depth, enum Kind kind, uint32_t flags, uint32_t series)
{
    uint64_t largest = depth < UINT16_MAX ? depth : UINT16_MAX;
    return largest | (uint64_t)kind << 16 | (uint64_t)flags << 24 | (uint64_t)series << 32;
}

static inline uint32_t tail_kind(uint64_t tail)
{
    return (uint32_t)(tail >> 16) & 0xff;
}
static inline uint32_t tail_flags(uint64_t tail)
{
    return (uint32_t)(tail >> 24) & 0xff;
}
static inline uint32_t tail_series(uint64_t tail)
{
    return (uint32_t)(tail >> 32);
}

/* Store the part that makes the record valid. */
static inline void record_publish(Record *record, uint64_t tail)
{
    shared_store((SharedLong *)&record->tail, tail);
}

#endif
