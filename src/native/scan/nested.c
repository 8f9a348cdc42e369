/* Finds which span contains which. From the spans of a table it computes the own time, the parent
 * and the depth of each, in the order of the table. See `frames/tracks.py`.
 *
 *     columns ──► the rows of each track, in order of begin ──► a sweep with a stack ──► columns
 *
 * A span's parent is the innermost span of its track that contains it completely. When a span ends
 * later than an open one that began earlier, the open one leaves the stack: everything that it
 * could contain from now on, the new one contains too. So each span enters and leaves the stack
 * once, whether spans nest or overlap. *
 * Clipped, spans never overlap: a span that begins within another one is its child, and ends with
 * it at the latest. */

#include "scan/column.h"

#include <stdlib.h>
#include <string.h>

#include "text/bytes.h"

#define MAX_DIGIT_BITS 13
#define FEW_DIGIT_BITS 8
#define MAX_DIGITS (1 << MAX_DIGIT_BITS)
#define MAX_INSERTED 64 /* up to so many rows are sorted by insertion */

/* A span that is open; its children seen so far cover it up to `covered`. */
typedef struct {
    int64_t end, covered_until;
    uint32_t row;
} OpenSpan;

/* A row to sort. */
typedef struct {
    uint64_t since; /* nanoseconds since the earliest begin */
    uint32_t row;
} SortedRow;

/* The columns of the table, and those that are computed. */
typedef struct {
    const int64_t *begins, *durs;
    const uint32_t *tracks;
    size_t num_rows, num_tracks, num_roots;
    uint32_t *rows; /* grouped by track */
    size_t *places; /* where the rows of each track begin; one more for the end of the last */
    OpenSpan *open;
    size_t open_capacity;
    /* room for sorting, allocated when a track needs it: twice as many as there are rows */
    SortedRow *sorted;
    uint8_t *has_parent;          /* one bit per row */
    int64_t *own_ns, *clipped_ns; /* the latter only if spans are clipped */
    uint32_t *parents, *depths;
} Nested;

static int64_t end_of(const Nested *nested, uint32_t row)
{
    int64_t begin = nested->begins[row], dur = nested->durs[row], end;
    return dur <= 0 ? begin : __builtin_add_overflow(begin, dur, &end) ? INT64_MAX : end;
}

/* -- sorting -- */

/* Order: the earlier begin first, then the later end, then the order of the table. */
static inline int comes_before(const Nested *nested, uint32_t one, uint32_t other)
{
    if (nested->begins[one] != nested->begins[other])
        return nested->begins[one] < nested->begins[other];
    int64_t end = end_of(nested, one), other_end = end_of(nested, other);
    return end != other_end ? end > other_end : one < other;
}

static void sort_few(const Nested *nested, uint32_t *rows, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        uint32_t row = rows[i];
        size_t at = i;
        for (; at > 0 && comes_before(nested, row, rows[at - 1]); at--) rows[at] = rows[at - 1];
        rows[at] = row;
    }
}

/* Sorts rows by one digit; rows with the same digit keep their order. */
static void sort_by_digit(const SortedRow *rows, SortedRow *into, size_t count, int shift,
                          int digit_bits)
{
    size_t places[MAX_DIGITS + 1], num_digits = (size_t)1 << digit_bits;
    memset(places, 0, (num_digits + 1) * sizeof *places);
    for (size_t i = 0; i < count; i++) places[(rows[i].since >> shift & (num_digits - 1)) + 1]++;
    for (size_t i = 1; i < num_digits; i++) places[i] += places[i - 1];
    for (size_t i = 0; i < count; i++)
        into[places[rows[i].since >> shift & (num_digits - 1)]++] = rows[i];
}

/* Sorts by `since`, whose largest value is given. `spare` has room for as many rows. Returns the
 * array that holds the result. */
static SortedRow *sort_rows(SortedRow *rows, SortedRow *spare, size_t count, uint64_t largest)
{
    int digit_bits = count < MAX_DIGITS ? FEW_DIGIT_BITS : MAX_DIGIT_BITS;
    for (int shift = 0; shift < 64 && largest >> shift != 0; shift += digit_bits) {
        sort_by_digit(rows, spare, count, shift, digit_bits);
        SortedRow *sorted = spare;
        spare = rows, rows = sorted;
    }
    return rows;
}

/* Sorts rows with the same begin: the latest end first. */
static void sort_same_begins(Nested *nested, SortedRow *rows, SortedRow *spare, size_t count)
{
    uint64_t largest = 0;
    int64_t last = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        int64_t end = end_of(nested, rows[i].row);
        last = end > last ? end : last;
    }
    for (size_t i = 0; i < count; i++) {
        rows[i].since = (uint64_t)last - (uint64_t)end_of(nested, rows[i].row);
        largest = rows[i].since > largest ? rows[i].since : largest;
    }
    SortedRow *sorted = sort_rows(rows, spare, count, largest);
    if (sorted != rows) memcpy(rows, sorted, count * sizeof *rows);
}

/* Sorts the rows of one track. Returns 0 without memory. */
static int sort_many(Nested *nested, uint32_t *rows, size_t count, int64_t first, int64_t last)
{
    if (nested->sorted == NULL)
        nested->sorted = pages_new_large(2 * nested->num_rows * sizeof *nested->sorted);
    if (nested->sorted == NULL) return 0;
    for (size_t i = 0; i < count; i++)
        nested->sorted[i] = (SortedRow){(uint64_t)nested->begins[rows[i]] - (uint64_t)first,
                                        rows[i]};
    SortedRow *sorted = sort_rows(nested->sorted, nested->sorted + count, count,
                                  (uint64_t)last - (uint64_t)first);
    SortedRow *spare = sorted == nested->sorted ? nested->sorted + count : nested->sorted;
    for (size_t at = 0, behind; at < count; at = behind) {
        uint64_t since = sorted[at].since;
        for (behind = at + 1; behind < count && sorted[behind].since == since;) behind++;
        if (behind - at > MAX_INSERTED) sort_same_begins(nested, sorted + at, spare, behind - at);
        for (size_t i = at; i < behind; i++) rows[i] = sorted[i].row;
        if (behind - at <= MAX_INSERTED) sort_few(nested, rows + at, behind - at);
    }
    return 1;
}

/* Returns 0 without memory. */
static int sort_track(Nested *nested, uint32_t *rows, size_t count)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    int is_sorted = 1;
    for (size_t i = 0; i < count; i++) {
        int64_t begin = nested->begins[rows[i]];
        is_sorted &= begin > last || i == 0 || comes_before(nested, rows[i - 1], rows[i]);
        first = begin < first ? begin : first;
        last = begin > last ? begin : last;
    }
    if (is_sorted) return 1;
    if (count > MAX_INSERTED) return sort_many(nested, rows, count, first, last);
    sort_few(nested, rows, count);
    return 1;
}

/* -- the sweep -- */

/* Subtracts the time that a child covers from its parent's own time. */
static void cover(Nested *nested, OpenSpan *parent, int64_t begin, int64_t end)
{
    int64_t from = begin > parent->covered_until ? begin : parent->covered_until;
    if (end > from) {
        nested->own_ns[parent->row] -= end - from;
        parent->covered_until = end;
    }
}

/* Whether an open span that ends at `open_end` contains neither this span nor any later one. */
static inline int is_over(const Nested *nested, int64_t open_end, int64_t begin, int64_t end)
{
    return open_end <= begin || (nested->clipped_ns == NULL && open_end < end);
}

/* Goes over the sorted spans of one track. Returns 0 without memory. */
static int sweep(Nested *nested, const uint32_t *rows, size_t count)
{
    size_t num_open = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t row = rows[i];
        int64_t begin = nested->begins[row], end = end_of(nested, row);
        while (num_open > 0 && is_over(nested, nested->open[num_open - 1].end, begin, end))
            num_open--;
        if (nested->clipped_ns != NULL) {
            if (num_open > 0 && nested->open[num_open - 1].end < end)
                end = nested->open[num_open - 1].end;
            nested->clipped_ns[row] = end - begin;
        }
        if (!array_room_for_next((void **)&nested->open, num_open, &nested->open_capacity,
                                 sizeof *nested->open))
            return 0;
        nested->own_ns[row] = end - begin;
        nested->depths[row] = (uint32_t)num_open;
        if (num_open > 0) {
            OpenSpan *parent = &nested->open[num_open - 1];
            cover(nested, parent, begin, end);
            nested->parents[row] = parent->row;
            nested->has_parent[row / 8] |= (uint8_t)(1 << row % 8);
        } else
            nested->num_roots++;
        nested->open[num_open++] = (OpenSpan){end, begin, row};
    }
    return 1;
}

/* Groups the rows by track, in the order of the table. Returns 0 without memory. */
static int group_by_track(Nested *nested)
{
    for (size_t row = 0; row < nested->num_rows; row++)
        nested->num_tracks = nested->tracks[row] >= nested->num_tracks
                                 ? nested->tracks[row] + (size_t)1
                                 : nested->num_tracks;
    nested->places = calloc(nested->num_tracks + 2, sizeof *nested->places);
    if (nested->places == NULL) return 0;
    /* where the next row of each track goes; at the end, where the next track begins */
    size_t *next = nested->places + 1;
    for (size_t row = 0; row < nested->num_rows; row++) next[nested->tracks[row] + (size_t)1]++;
    for (size_t track = 1; track <= nested->num_tracks; track++) next[track] += next[track - 1];
    for (size_t row = 0; row < nested->num_rows; row++)
        nested->rows[next[nested->tracks[row]]++] = (uint32_t)row;
    return 1;
}

/* Returns 0 without memory. */
static int nest_all(Nested *nested)
{
    if (!group_by_track(nested)) return 0;
    for (size_t track = 0; track < nested->num_tracks; track++) {
        uint32_t *rows = nested->rows + nested->places[track];
        size_t count = nested->places[track + 1] - nested->places[track];
        if (!sort_track(nested, rows, count) || !sweep(nested, rows, count)) return 0;
    }
    return 1;
}

/* -- from Python -- */

static int make_room(Nested *nested, int is_clipped)
{
    size_t num_rows = nested->num_rows;
    if (is_clipped) {
        nested->clipped_ns = pages_new_large((num_rows + 1) * sizeof *nested->clipped_ns);
        if (nested->clipped_ns == NULL) return 0;
    }
    nested->rows = malloc((num_rows + 1) * sizeof *nested->rows);
    nested->has_parent = pages_new(num_rows / 8 + 1);
    nested->own_ns = pages_new_large((num_rows + 1) * sizeof *nested->own_ns);
    nested->parents = pages_new_large((num_rows + 1) * sizeof *nested->parents);
    nested->depths = pages_new_large((num_rows + 1) * sizeof *nested->depths);
    return nested->rows && nested->has_parent && nested->own_ns && nested->parents &&
           nested->depths;
}

/* Frees everything except the columns that were moved out. */
static void free_rooms(Nested *nested)
{
    free(nested->rows);
    free(nested->places);
    free(nested->open);
    pages_free(nested->sorted);
    pages_free(nested->has_parent);
    pages_free(nested->own_ns);
    pages_free(nested->clipped_ns);
    pages_free(nested->parents);
    pages_free(nested->depths);
}

/* Moves a column into the list; -1 with an error set. */
static int move_column(PyObject *list, const char *title, const char *format, const Nested *nested,
                       void *values, void *valid)
{
    PyObject *name = PyBytes_FromString(title);
    if (name == NULL) {
        pages_free(values);
        pages_free(valid);
        return -1;
    }
    int64_t num_nulls = valid == NULL ? 0 : (int64_t)nested->num_roots;
    int result = column_append(list, name, format, (int64_t)nested->num_rows, num_nulls, valid,
                               values, NULL);
    Py_DECREF(name);
    return result;
}

/* Returns `*pages`, which the caller owns from now on. */
static void *moved(void *pages)
{
    void *taken = *(void **)pages;
    *(void **)pages = NULL;
    return taken;
}

static PyObject *move_columns(Nested *nested)
{
    PyObject *list = PyList_New(0);
    if (list == NULL) return NULL;
    if (move_column(list, "self_ns", "l", nested, moved(&nested->own_ns), NULL) < 0 ||
        move_column(list, "parent", "I", nested, moved(&nested->parents),
                    moved(&nested->has_parent)) < 0 ||
        move_column(list, "depth", "I", nested, moved(&nested->depths), NULL) < 0 ||
        (nested->clipped_ns != NULL &&
         move_column(list, "dur", "l", nested, moved(&nested->clipped_ns), NULL) < 0))
        Py_CLEAR(list);
    return list;
}

static PyObject *nest_read(const ColumnsRead *read, int is_clipped)
{
    if (read->num_rows >= UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "%zu spans are more than can be numbered.",
                            read->num_rows);
    Nested nested = {.begins = read->values[0],
                     .durs = read->values[1],
                     .tracks = read->values[2],
                     .num_rows = read->num_rows};
    int is_done = make_room(&nested, is_clipped);
    if (is_done) {
        Py_BEGIN_ALLOW_THREADS
        is_done = nest_all(&nested);
        Py_END_ALLOW_THREADS
    }
    PyObject *columns = is_done ? move_columns(&nested) : PyErr_NoMemory();
    free_rooms(&nested);
    return columns;
}

PyObject *nest_spans(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *stream;
    int is_clipped = 0;
    if (!PyArg_ParseTuple(args, "O|p:nest_spans", &stream, &is_clipped)) return NULL;
    static const char *const formats[] = {"l", "l", "I"};
    ColumnsRead read;
    if (columns_read(stream, formats, 3, &read) < 0) return NULL;
    PyObject *columns = nest_read(&read, is_clipped);
    columns_release(&read);
    return columns;
}
