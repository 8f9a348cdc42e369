/* The head of a track: its thread, and a slot for each open span, so that open spans survive a
 * kill. It is a file if the recorder has a folder. Each slot has an entry. */

#include "recorder/native.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_HEAD_BYTES 4096

/* Writes the magic last: a header without it is incomplete. */
static void write_magic(TrackHeader *header, const char *magic)
{
    uint64_t word;
    memcpy(&word, magic, sizeof word);
    shared_store((SharedLong *)header->magic, word);
}

void track_write_header(Track *track)
{
    TrackHeader *header = track->head.start;
    Store *store = track->recorder->store;
    write_magic(header, "\0\0\0\0\0\0\0");
    shared_barrier();
    header->version = FORMAT_VERSION;
    header->pid = (uint32_t)store->pid;
    header->track = track->number;
    header->tid = track->tid;
    header->rank = store->rank;
    header->is_main = (uint32_t)track->is_main;
    header->monotonic_ns = read_clock(CLOCK_MONOTONIC);
    header->unix_ns = read_clock(CLOCK_REALTIME);
    shared_store(&header->num_slots, track->num_slots);
    size_t length;
    const char *name = track_name(track, &length);
    memset(header->name, 0, sizeof header->name);
    if (length > 0) memcpy(header->name, name, length);
    write_magic(header, TRACK_MAGIC);
}

static int set_num_slots(Track *track)
{
    TrackHeader *header = track->head.start;
    uint32_t num_slots = (uint32_t)((track->head.bytes - sizeof *header) / sizeof(Record));
    track->slots = (Record *)(header + 1);
    Entry **entries = realloc(track->entries, num_slots * sizeof *entries);
    if (entries == NULL) return 0;
    track->entries = entries;
    track->num_slots = num_slots;
    shared_store(&header->num_slots, num_slots);
    return 1;
}

static int make_head(Track *track)
{
    if (region_create(track->recorder->store, &track->head, FIRST_HEAD_BYTES, "track") != 0 ||
        !set_num_slots(track))
        return 0;
    track_write_header(track);
    return 1;
}

int track_move_head_to_memory(Track *track)
{
    Store *store = track->recorder->store;
    Region memory = {NULL, 0, 0};
    if (track->head.file == 0) return 1;
    if (region_create(store, &memory, track->head.bytes, "track") != 0) return 0;
    memcpy(memory.start, track->head.start, track->head.bytes);
    memset((TrackHeader *)track->head.start + 1, 0, track->head.bytes - sizeof(TrackHeader));
    region_unmap(&track->head);
    region_unlink_unless_left(store, &track->head, "track");
    track->head = memory;
    return set_num_slots(track);
}

/* Makes the head, or enlarges it for more slots. Returns 0 without memory. */
static int add_slots(Track *track)
{
    Store *store = track->recorder->store;
    size_t bytes = track->head.bytes * 2;
    if (track->head.start == NULL) return make_head(track);
    if (region_grow(store, &track->head, bytes, "track") == 0) return set_num_slots(track);
    /* There is no space on disk for more slots: from now on they are in memory. */
    return track_move_head_to_memory(track) &&
           region_grow(store, &track->head, bytes, "track") == 0 && set_num_slots(track);
}

void track_finish_head(Track *track)
{
    Store *store = track->recorder->store;
    track->head_is_final = 1;
    Region head, old = track->head;
    size_t bytes = old.start != NULL ? old.bytes : FIRST_HEAD_BYTES;
    if (old.file != 0 || !region_create_file(store, &head, bytes, "track")) return;
    track->head = head;
    if (old.start != NULL) {
        memcpy((TrackHeader *)head.start + 1, (TrackHeader *)old.start + 1,
               bytes - sizeof(TrackHeader));
        region_unmap(&old);
    }
    if (set_num_slots(track)) track_write_header(track);
}

int track_has_span_to_record(const Track *track)
{
    for (uint32_t slot = 0; slot < track->num_made; slot++)
        if (tail_kind(track->slots[slot].tail) == KIND_SPAN) return 1;
    return 0;
}

/* -- entries -- */

/* A new entry of a track, or NULL: with an error set, or without one if the recorder has dropped
 * the track meanwhile. That happens in the child of a fork in a finalizer, which up to Python 3.11
 * the garbage collection runs here. */
static Entry *new_entry(Track *track)
{
    track_keep(track);
    Entry *entry = entry_new(track);
    if (entry != NULL && track->recorder == NULL) {
        Py_CLEAR(entry->exit);
        entry = NULL;
    }
    track_drop(track);
    return entry;
}

Entry *track_make_entry(Track *track)
{
    /* may run Python code that makes other entries, so it has no slot yet */
    Entry *entry = new_entry(track);
    if (entry == NULL) return NULL;
    if (track->num_made == track->num_slots && !add_slots(track)) {
        Py_CLEAR(entry->exit);
        return (Entry *)PyErr_NoMemory();
    }
    entry->slot = track->num_made++;
    track->entries[entry->slot] = entry;
    return entry;
}

Entry *track_replace_entry(Entry *old)
{
    Py_INCREF((PyObject *)old);
    Track *track = old->track;
    Entry *entry = new_entry(track);
    if (entry != NULL) {
        entry->slot = old->slot;
        track->entries[entry->slot] = entry;
        Py_CLEAR(old->exit);
    } else if (track->recorder != NULL)
        track_free_entry(track, old);
    Py_DECREF((PyObject *)old);
    return entry;
}

void track_drop_entries(Track *track)
{
    for (uint32_t slot = 0; slot < track->num_made; slot++) {
        Entry *entry = track->entries[slot];
        if (entry->state == ENTRY_HANDED) entry->state = ENTRY_IDLE; /* it cannot begin any more */
        Py_CLEAR(entry->exit);
    }
    track->num_made = 0;
    track->free_entries = NULL;
}
