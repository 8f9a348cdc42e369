/* See bytes.h. */

#include "text/bytes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

char *bytes_grow(Bytes *bytes, size_t more)
{
    size_t capacity = bytes->capacity < 256 ? 256 : bytes->capacity;
    while (capacity - bytes->length < more) {
        if (capacity > SIZE_MAX / 2) {
            bytes->has_failed = 1;
            return NULL;
        }
        capacity *= 2;
    }
    char *at = realloc(bytes->at, capacity);
    if (at == NULL) {
        bytes->has_failed = 1;
        return NULL;
    }
    bytes->at = at;
    bytes->capacity = capacity;
    return at + bytes->length;
}

void bytes_free(Bytes *bytes)
{
    free(bytes->at);
    memset(bytes, 0, sizeof *bytes);
}

int array_enlarge(void **array, size_t index, size_t *capacity, size_t element_bytes)
{
    size_t larger = *capacity == 0 ? 16 : *capacity, most = SIZE_MAX / element_bytes;
    while (larger <= index) {
        if (larger > most / 2) return 0;
        larger *= 2;
    }
    if (larger > most) return 0;
    void *grown = realloc(*array, larger * element_bytes);
    if (grown == NULL) return 0;
    *array = grown;
    *capacity = larger;
    return 1;
}

int array_room_up_to(void **array, size_t index, size_t *capacity, size_t element_bytes)
{
    size_t before = *capacity;
    if (index < before) return 1;
    if (!array_enlarge(array, index, capacity, element_bytes)) return 0;
    memset((char *)*array + before * element_bytes, 0, (*capacity - before) * element_bytes);
    return 1;
}

/* Different in every process, so that no file can be made whose names all get the same slot.
 * The first thread that needs it chooses it: with two seeds, a table could hold a name twice. */
static uint64_t seed(void)
{
    static _Atomic(uint64_t) chosen;
    uint64_t known = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (known != 0) return known;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mine = ((uint64_t)now.tv_nsec << 20 ^ (uint64_t)now.tv_sec ^
                     (uint64_t)(uintptr_t)&chosen) |
                    1;
    int is_first = atomic_compare_exchange_strong_explicit(&chosen, &known, mine,
                                                           memory_order_relaxed,
                                                           memory_order_relaxed);
    return is_first ? mine : known;
}

static uint64_t mix(uint64_t one, uint64_t other)
{
    __extension__ unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const char *key, size_t length)
{
    uint64_t hash = seed() ^ length, piece;
    for (; length >= 8; key += 8, length -= 8) {
        memcpy(&piece, key, 8);
        hash = mix(hash ^ piece, UINT64_C(0x9e3779b97f4a7c15));
    }
    piece = 0;
    memcpy(&piece, key, length);
    return mix(hash ^ piece, UINT64_C(0xd6e8feb86659fd93));
}

static int table_widen(Table *table)
{
    size_t num_slots = table->num_slots == 0 ? 64 : table->num_slots * 2;
    uint32_t *slots = calloc(num_slots, sizeof *slots);
    if (slots == NULL) return 0;
    for (size_t i = 0; i < table->num_entries; i++) {
        size_t slot = table->entries[i].hash & (num_slots - 1);
        while (slots[slot] != 0) slot = (slot + 1) & (num_slots - 1);
        slots[slot] = (uint32_t)i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->num_slots = num_slots;
    return 1;
}

static uint32_t table_add(Table *table, size_t slot, const char *key, size_t length, uint64_t hash)
{
    int is_over = table->max_bytes > 0 && table->keys.length + length > table->max_bytes;
    if (is_over || table->num_entries >= UINT32_MAX - 2 ||
        !array_room_for_next((void **)&table->entries, table->num_entries, &table->entries_capacity,
                             sizeof *table->entries) ||
        bytes_room(&table->keys, length) == NULL)
        return TABLE_FULL;
    table->entries[table->num_entries] = (TableEntry){table->keys.length, length, hash};
    bytes_put(&table->keys, key, length);
    table->slots[slot] = (uint32_t)++table->num_entries;
    return (uint32_t)table->num_entries - 1;
}

/* The slot of a key, or the free one where it belongs. The table has slots. */
static inline size_t slot_of(const Table *table, const char *key, size_t length, uint64_t hash)
{
    size_t slot = hash & (table->num_slots - 1);
    for (; table->slots[slot] != 0; slot = (slot + 1) & (table->num_slots - 1)) {
        const TableEntry *entry = &table->entries[table->slots[slot] - 1];
        if (entry->hash == hash && entry->length == length &&
            memcmp(table->keys.at + entry->at, key, length) == 0)
            break;
    }
    return slot;
}

uint32_t table_intern(Table *table, const char *key, size_t length)
{
    if (table->num_entries * 2 >= table->num_slots && !table_widen(table)) return TABLE_FULL;
    uint64_t hash = hash_of(key, length);
    size_t slot = slot_of(table, key, length, hash);
    return table->slots[slot] != 0 ? table->slots[slot] - 1
                                   : table_add(table, slot, key, length, hash);
}

uint32_t table_find(const Table *table, const char *key, size_t length)
{
    if (table->num_slots == 0) return TABLE_FULL;
    size_t slot = slot_of(table, key, length, hash_of(key, length));
    return table->slots[slot] != 0 ? table->slots[slot] - 1 : TABLE_FULL;
}

void table_free(Table *table)
{
    bytes_free(&table->keys);
    free(table->entries);
    free(table->slots);
    memset(table, 0, sizeof *table);
}
